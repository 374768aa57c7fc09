"""A view for robomimic: one HDF5 file of links and virtual arrays over the episodes as they lie.

    data                        attributes: total, env_args
        demo_<n>                attributes: num_samples, attempt, seed, outcome, error, scene
            obs/<name>          rows 0 to T - 1 of our T + 1
            next_obs/<name>     rows 1 to T
            actions, rewards    (T, ...)
            dones               (T,) int64, 1 where the episode ends
            terminations, truncations, success, state_digest
    mask/train, mask/valid      nine tenths and one tenth of the successful episodes
    mask/success, mask/failure  all of them, and the others

Nothing is copied; only `dones` is new. Paths are relative: data set and view can be moved together.
Where our files are missing, links fail, and virtual observations read as NaN or 0, as HDF5 has it.
The layout is that of https://robomimic.github.io/docs/datasets/overview.html.
"""

import json
from pathlib import Path

import h5py
import numpy as np

from fleet_tools.dataset.export.source import EpisodeFile, Source
from fleet_tools.dataset.header import Header
from fleet_tools.dataset.reader import Record
from fleet_tools.perception.observation_config import channel_of

_GYM_TYPE = 2
"""Of an environment, in robomimic's `EnvType`."""

_LINKS = {
    "actions": "actions",
    "rewards": "rewards",
    "terminations": "terminations",
    "truncations": "truncations",
    "success": "infos/success",
    "state_digest": "infos/state_digest",
}


def opens(output: Path, header: Header) -> str:
    """Returns how to open it."""
    names = tuple(name for name in header.observation if channel_of(name) is None)
    return (
        f'robomimic.utils.dataset.SequenceDataset("{output}", obs_keys={names}, '
        'dataset_keys=("actions", "rewards", "dones"), filter_by_attribute="train")'
    )


def write(source: Source, aside: Path, target: Path) -> list[str]:
    """Writes the view; see `exporting.Format`."""
    with h5py.File(aside, "w", libver=("v110", "v110")) as file:
        data = file.create_group("data")
        for number, (record, episode) in enumerate(source.files()):
            _add(data.create_group(f"demo_{number}"), record, episode, target.parent)
        data.attrs["total"] = source.steps
        data.attrs["env_args"] = _env_args(source.header)
        data.attrs["fleet_tools"] = source.header.model_dump_json()
        for name, numbers in _masks(source.records).items():
            names = np.array([f"demo_{number}".encode() for number in numbers], dtype="S")
            file[f"mask/{name}"] = names
    return [
        "`states`, which robomimic would reset its own environments to: the scene, an attribute, "
        "and the actions determine them",
        "rollouts within robomimic: its `EnvGym` speaks Gym's old interface",
    ]


def _add(group: h5py.Group, record: Record, episode: EpisodeFile, folder: Path) -> None:
    path, steps = episode.relative_to(folder), episode.steps
    group.attrs["num_samples"] = steps
    group.attrs["attempt"] = record.attempt
    group.attrs.update(episode.attributes)
    for name, place in _LINKS.items():
        group[name] = h5py.ExternalLink(path, f"{episode.group}/{place}")
    group["dones"] = np.arange(1, steps + 1) // steps
    for name, rows in episode.observations.items():
        stored = h5py.VirtualSource(
            path, f"{episode.group}/observations/{name}", rows.shape, rows.dtype
        )
        depth = channel_of(name) == "depth"  # has an axis of channels in robomimic
        shape = (steps, *rows.shape[1:], *(1,) * depth)
        fill = np.nan if rows.dtype.kind == "f" else 0
        for kind, first in (("obs", 0), ("next_obs", 1)):
            view = h5py.VirtualLayout(shape, rows.dtype)
            view[...] = stored[first : first + steps]
            group.create_virtual_dataset(f"{kind}/{name}", view, fillvalue=fill)


def _env_args(header: Header) -> str:
    return json.dumps(
        {
            "env_name": header.environment.id,
            "type": _GYM_TYPE,
            "env_kwargs": header.environment.kwargs,
        }
    )


def _masks(records: list[Record]) -> dict[str, list[int]]:
    """Returns numbers of episodes by mask; with two successes or more, `valid` is not empty.

    Scenes are drawn independently, so that the last ones are as good a sample as any.
    """
    success = [number for number, record in enumerate(records) if record.success]
    failure = [number for number, record in enumerate(records) if not record.success]
    train = len(success) - -(-len(success) // 10) if len(success) > 1 else len(success)
    return {
        "train": success[:train],
        "valid": success[train:],
        "success": success,
        "failure": failure,
    }
