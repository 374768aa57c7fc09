"""A view for robomimic: one HDF5 file of links and virtual arrays over the episodes' files.

    data                        attributes: total, env_args, fleet_tools, view_of
        demo_<n>                attributes: num_samples, dataset, attempt, first_step, seed, ...
            obs/<name>          rows 0 to T - 1 of T + 1
            next_obs/<name>     rows 1 to T
            actions, rewards    (T, ...), the actions to imitate
            executed_actions    (T, ...)
            imitate             (T,) bool
            dones               (T,) int64, 1 where the episode ends
            terminations, truncations, success, state_digest
    mask/train, mask/valid      nine tenths and one tenth of each dataset's successful episodes
    mask/success, mask/failure  all of them, and the others
    whole/attempt_<k>           the episode as stored, if demonstrations lack some of its steps;
                                whole/dataset_<n>/attempt_<k> if there are several datasets

robomimic's learners imitate all `actions` of a demonstration, so a demonstration is an episode, or
a run of steps to imitate in it, see `ExportSource.episodes`.
Observations are not copied. Paths are relative: dataset and view can be moved together.
If the episodes' files are missing, links fail, and HDF5 reads virtual observations as NaN or 0.
The layout is described at https://robomimic.github.io/docs/datasets/overview.html.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.episode_file import OBSERVATIONS
from fleet_tools.dataset.export.source import (
    ExportEpisode,
    ExportSource,
    PieceView,
    link_whole,
    stored_view,
)
from fleet_tools.dataset.header import Header

_GYM_TYPE = 2
"""Type of a Gym environment, in robomimic's `EnvType`."""

_NAMES = {
    "actions": "actions",
    "rewards": "rewards",
    "terminated": "terminations",
    "truncated": "truncations",
    "success": "success",
    "digests": "state_digest",
}


def opens(output: Path, datasets: Sequence[Dataset]) -> str:
    """Returns the line of Python that opens the view."""
    header = datasets[0].header
    names = tuple(name for name in header.observation if name not in header.images)
    return (
        f"robomimic.utils.dataset.SequenceDataset({str(output)!r}, obs_keys={names}, "
        'dataset_keys=("actions", "rewards", "dones"), filter_by_attribute="train")'
    )


def write(source: ExportSource, aside: Path, target: Path) -> list[str]:
    """Writes the view; see `exporting.ExportFormat`."""
    with stored_view(aside) as file:
        data = file.create_group("data")
        demonstrations: list[ExportEpisode] = []
        for episode in source.episodes:
            for first, end in episode.pieces:
                group = data.create_group(f"demo_{len(demonstrations)}")
                _add(PieceView(group, episode, first, end, target.parent))
                demonstrations.append(episode)
        if source.cut:
            link_whole(file, source, target.parent)
        data.attrs["total"] = sum(source.lengths)
        data.attrs["env_args"] = _env_args(source.header)
        data.attrs["fleet_tools"] = json.dumps(source.headers)
        data.attrs["view_of"] = source.folders
        for name, numbers in _masks(demonstrations).items():
            names = np.array([f"demo_{number}".encode() for number in numbers], dtype="S")
            file[f"mask/{name}"] = names
    return [
        "`states`, to which robomimic resets its own environments: the scene, an attribute, and "
        "the actions determine them",
        "rollouts within robomimic: its `EnvGym` needs Gym's former interface",
    ]


def _add(view: PieceView) -> None:
    group, steps = view.group, view.steps
    group.attrs.update(num_samples=steps, attempt=view.source.record.attempt)
    view.add(_NAMES, imitate="imitate", executed_actions="executed_actions")
    group["dones"] = np.zeros(steps, np.int64) if view.cut else np.arange(1, steps + 1) // steps
    for array in view.episode.contents.arrays:
        if array.startswith(OBSERVATIONS):
            name = array.removeprefix(OBSERVATIONS)
            # robomimic's depth images have an axis of channels.
            depth = view.episode.header.observation[name].kind == "depth"
            view.show(f"obs/{name}", array, view.first, steps, channel=depth)
            view.show(f"next_obs/{name}", array, view.first + 1, steps, channel=depth)


def _env_args(header: Header) -> str:
    return json.dumps(
        {
            "env_name": header.env_spec.id,
            "type": _GYM_TYPE,
            "env_kwargs": header.local_spec().kwargs,
        }
    )


def _masks(demonstrations: list[ExportEpisode]) -> dict[str, list[int]]:
    """Returns numbers of demonstrations by mask; `valid` has some of each dataset's, if it can.

    Scenes are drawn independently, so the last ones of a dataset are a fair sample of it.

    Args:
        demonstrations: The episode of each demonstration.
    """
    success = [each for each in dict.fromkeys(demonstrations) if each.record.success]
    valid: set[ExportEpisode] = set()
    for number in {each.dataset for each in success}:
        own = [each for each in success if each.dataset == number]
        valid |= set(own[len(own) - -(-len(own) // 10) :] if len(own) > 1 else ())
    chosen = {
        "train": set(success) - valid,
        "valid": valid,
        "success": set(success),
        "failure": set(demonstrations) - set(success),
    }
    return {
        name: [k for k, each in enumerate(demonstrations) if each in some]
        for name, some in chosen.items()
    }
