"""Datasets on disk.

    dataset.json                        what was collected (`header.Header`)
    manifest.jsonl                      a line for every attempt (`stored_episode.AttemptRecord`)
    episodes/episode_000012.hdf5        the episode of attempt 12 (`episode_file`)

Only what the manifest lists is part of the dataset. Policies learn from `samples.Samples`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
