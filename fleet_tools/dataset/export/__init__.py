"""Hands a data set to other projects' readers: `python -m fleet_tools.dataset export DIR --to X`.

    minari       a view: links to our files, which `minari.load_dataset` opens
    robomimic    a view: virtual arrays over our files, which its `SequenceDataset` opens
    lerobot      a copy in LeRobot's format 3.0, pictures lossless
    zarr         a copy in the layout of diffusion policy's `ReplayBuffer`

Each keeps every episode's attempt, seed, outcome, error and scene, and says what it cannot hold.
"""

from fleet_tools.dataset.export.exporting import FORMATS, Export, export_dataset

__all__ = ["FORMATS", "Export", "export_dataset"]
