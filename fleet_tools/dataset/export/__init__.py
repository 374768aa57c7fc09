"""Exports datasets to other formats: `python -m fleet_tools.dataset export FOLDER ... --to FORMAT`.

minari       a view: links to the dataset's files, which `minari.load_dataset` opens
robomimic    a view: virtual arrays over the dataset's files, for its `SequenceDataset`
lerobot      a copy in LeRobot's format 3.0, with lossless images

Learners of these projects imitate all actions of what they take for an episode. So each holds the
actions to imitate, and has episodes that are cut at steps without one, see
`source.ExportSource.episodes`.
Each keeps dataset, attempt, seed, outcome, error and scene of every episode, and lists what it
cannot hold.
`exporting` selects the episodes and calls the format's module, `source` reads the episodes.
"""

from typing import Literal, get_args

FormatName = Literal["lerobot", "minari", "robomimic"]

FORMAT_NAMES: tuple[FormatName, ...] = get_args(FormatName)
