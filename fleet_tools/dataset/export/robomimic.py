"""A view for robomimic: one HDF5 file of links and virtual arrays over the episodes' files.

    data                        attributes: total, env_args, fleet_tools, view_of
        demo_<n>                attributes: num_samples, attempt, seed, outcome, error, scene
            obs/<name>          rows 0 to T - 1 of T + 1
            next_obs/<name>     rows 1 to T
            actions, rewards    (T, ...)
            dones               (T,) int64, 1 where the episode ends
            terminations, truncations, success, state_digest
    mask/train, mask/valid      nine tenths and one tenth of the successful episodes
    mask/success, mask/failure  all of them, and the others

Nothing is copied; only `dones` is new. Paths are relative: dataset and view can be moved together.
If the episodes' files are missing, links fail, and HDF5 reads virtual observations as NaN or 0.
The layout is that of https://robomimic.github.io/docs/datasets/overview.html.
"""

import json
from pathlib import Path

import h5py
import numpy as np

from fleet_tools.dataset.export.source import LocatedEpisode, Source
from fleet_tools.dataset.header import Header
from fleet_tools.dataset.manifest import AttemptRecord
from fleet_tools.perception.observation_config import channel_of

_GYM_TYPE = 2
"""Type of a Gym environment, in robomimic's `EnvType`."""

_LINKS = {
    "actions": "actions",
    "rewards": "rewards",
    "terminations": "terminations",
    "truncations": "truncations",
    "success": "infos/success",
    "state_digest": "infos/state_digest",
}


def opens(output: Path, header: Header) -> str:
    """Returns the line of Python that opens the view."""
    names = tuple(name for name in header.observation if channel_of(name) is None)
    return (
        f'robomimic.utils.dataset.SequenceDataset("{output}", obs_keys={names}, '
        'dataset_keys=("actions", "rewards", "dones"), filter_by_attribute="train")'
    )


def write(source: Source, aside: Path, target: Path) -> list[str]:
    """Writes the view; see `exporting.ExportFormat`."""
    with h5py.File(aside, "w", libver=("v110", "v110")) as file:
        data = file.create_group("data")
        for number, (record, episode) in enumerate(source.located_episodes()):
            _add(data.create_group(f"demo_{number}"), record, episode, target.parent)
        data.attrs["total"] = source.steps
        data.attrs["env_args"] = _env_args(source.header)
        data.attrs["fleet_tools"] = source.header.model_dump_json()
        data.attrs["view_of"] = source.dataset.folder.resolve().name
        for name, numbers in _masks(source.records).items():
            names = np.array([f"demo_{number}".encode() for number in numbers], dtype="S")
            file[f"mask/{name}"] = names
    return [
        "`states`, to which robomimic resets its own environments: the scene, an attribute, and "
        "the actions determine them",
        "rollouts within robomimic: its `EnvGym` needs Gym's former interface",
    ]


def _add(group: h5py.Group, record: AttemptRecord, episode: LocatedEpisode, folder: Path) -> None:
    path, steps = episode.relative_to(folder), episode.steps
    group.attrs["num_samples"] = steps
    group.attrs["attempt"] = record.attempt
    group.attrs.update(episode.attributes)
    for name, stored_name in _LINKS.items():
        group[name] = h5py.ExternalLink(path, f"{episode.group}/{stored_name}")
    group["dones"] = np.arange(1, steps + 1) // steps
    for name, rows in episode.observations.items():
        stored = h5py.VirtualSource(
            path, f"{episode.group}/observations/{name}", rows.shape, rows.dtype
        )
        depth = channel_of(name) == "depth"  # robomimic's depth images have an axis of channels
        shape = (steps, *rows.shape[1:], *(1,) * depth)
        fill = np.nan if rows.dtype.kind == "f" else 0
        for kind, first in (("obs", 0), ("next_obs", 1)):
            view = h5py.VirtualLayout(shape, rows.dtype)
            view[...] = stored[first : first + steps]
            group.create_virtual_dataset(f"{kind}/{name}", view, fillvalue=fill)


def _env_args(header: Header) -> str:
    return json.dumps(
        {
            "env_name": header.env_spec.id,
            "type": _GYM_TYPE,
            "env_kwargs": header.local_spec().kwargs,
        }
    )


def _masks(records: list[AttemptRecord]) -> dict[str, list[int]]:
    """Returns numbers of episodes by mask; `valid` is not empty if there are two successes.

    Scenes are drawn independently, so the last ones are a fair sample.
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
