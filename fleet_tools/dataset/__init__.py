"""Data sets on disk.

    dataset.json                        what it is (`header.Header`)
    manifest.jsonl                      a line for every attempt, stored or not (`reader.Record`)
    episodes/episode_000012.hdf5        attempt 12 (`episode_file`)

Only what the manifest lists is part of it. Policies learn from `samples.Samples`, in NumPy, or from
`learning.FleetDataset`, in PyTorch.
"""

from fleet_tools.dataset.reader import Dataset, Record
from fleet_tools.dataset.writer import DatasetWriter

__all__ = ["Dataset", "DatasetWriter", "Record"]
