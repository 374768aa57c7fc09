"""Exports datasets to other formats: `python -m fleet_tools.dataset export FOLDER ... --to FORMAT`.

minari       a view: links to the dataset's files, which `minari.load_dataset` opens
robomimic    a view: virtual arrays over the dataset's files, for its `SequenceDataset`
lerobot      a copy in LeRobot's format 3.0, with lossless images
ply          a copy of the point clouds alone, one file a step
zarr         a copy in the layout of diffusion policy's `ReplayBuffer`

Learners of these projects imitate all actions of what they take for an episode. So each but ply
holds the actions to imitate, and has episodes that are cut at steps without one, see
`source.ExportSource.episodes`.
Each but ply keeps dataset, attempt, seed, outcome, error and scene of every episode; each lists
what it cannot hold.
`exporting` selects the episodes and calls the format's module, `source` reads the episodes.
"""

from typing import Literal, get_args

FormatName = Literal["lerobot", "minari", "ply", "robomimic", "zarr"]

FORMAT_NAMES: tuple[FormatName, ...] = get_args(FormatName)
