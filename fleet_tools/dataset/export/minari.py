"""A view for Minari: its metadata, and a file of links to the arrays in the episodes' files.

    fleet_tools/hammer/expert-state-v0/data/metadata.json
        main_data.hdf5      episode_<n>: links
        whole.hdf5          whole/attempt_<k>: links to episodes that Minari's lack steps of;
                            whole/dataset_<n>/attempt_<k> if the view shows several datasets

Learners imitate all `actions` of an episode of Minari's, so it is an episode, or a run of steps to
imitate in it, see `ExportSource.episodes`; `infos` has `imitate` and `executed_actions` of each
step, too. Episodes are stored in Minari's own layout, so hardly anything is copied. The links are
relative: dataset and view can be moved together. Minari numbers the episodes from 0 to n - 1; the
number of an episode's attempt is `id` in `dataset.storage.get_episode_metadata([n])`, beside
`dataset`, `first_step`, `seed`, `outcome`, `error` and `scene`. A view shows datasets of one
environment. The layout is Minari 0.5's
(https://minari.farama.org).
"""

import copy
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium import spaces

from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.episode_file import NAMES_IN_FILE, OBSERVATIONS
from fleet_tools.dataset.export.source import ExportSource, PieceView, link_whole, stored_view
from fleet_tools.dataset.header import Header
from fleet_tools.errors import UnknownNameError

_VERSION = "0.5.4"
"""Version of Minari, the first whose metadata can declare that images are not JPEGs."""


def dataset_id(datasets: Sequence[Dataset]) -> str:
    """Returns the name in Minari of datasets of one environment."""
    header = datasets[0].header
    names = (header.task.name, "_".join(_policies(datasets)), header.env_spec.obs_mode)
    task, policy, mode = (re.sub(r"[^-\w]", "_", name) for name in names)
    return f"fleet_tools/{task}/{policy}-{mode}-v0"


def target(output: Path, datasets: Sequence[Dataset]) -> Path:
    """Returns the folder of the dataset below `output`, the root of Minari's datasets."""
    return output / dataset_id(datasets)


def opens(output: Path, datasets: Sequence[Dataset]) -> str:
    """Returns the line of Python that opens the view; `output` is the root."""
    root = shlex.quote(str(output.resolve()))
    return f"minari.load_dataset({dataset_id(datasets)!r}), with MINARI_DATASETS_PATH={root}"


def write(source: ExportSource, aside: Path, target: Path) -> list[str]:
    """Writes the view; see `exporting.ExportFormat`."""
    folder = aside / "data"
    folder.mkdir(parents=True)
    number = 0
    with stored_view(folder / "main_data.hdf5") as file:
        for episode in source.episodes:
            for first, end in episode.pieces:
                group = file.create_group(f"episode_{number}")
                _add(PieceView(group, episode, first, end, target / "data"))
                number += 1
    if source.cut:
        with stored_view(folder / "whole.hdf5") as file:
            link_whole(file, source, target / "data")
    (folder / "metadata.json").write_text(json.dumps(_metadata(source)))
    return ["units and frames of observations, except for the header in `metadata.json`"]


def _add(view: PieceView) -> None:
    view.group.attrs.update(id=view.source.record.attempt, total_steps=view.steps)
    view.add(NAMES_IN_FILE, "infos/imitate", "infos/executed_actions")
    for array in view.episode.contents.arrays:
        if array.startswith(OBSERVATIONS):
            view.show(array, array, view.first, view.steps + 1)


def _metadata(source: ExportSource) -> dict[str, Any]:
    header = source.header
    linked = sum(each.stored.path.stat().st_size for each in source.episodes)
    return {
        "dataset_id": dataset_id(source.datasets),
        "minari_version": _VERSION,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "total_episodes": len(source.lengths),
        "total_steps": sum(source.lengths),
        "dataset_size": round(linked / 1e6, 1),  # MB
        "observation_space": json.dumps(
            {
                "type": "Dict",
                "subspaces": {
                    name: _as_json(array.space) for name, array in header.observation.items()
                },
            }
        ),
        "action_space": json.dumps(_as_json(header.action.space)),
        "env_spec": _env_spec(header),
        "algorithm_name": ", ".join(_policies(source.datasets)),
        "fleet_tools": source.headers,
        "view_of": source.folders,
    }


def _policies(datasets: Sequence[Dataset]) -> list[str]:
    return list(dict.fromkeys(dataset.header.policy for dataset in datasets))


def _as_json(box: spaces.Box) -> dict[str, Any]:
    return {
        "type": "Box",
        "dtype": box.dtype.name,
        "shape": box.shape,
        "low": box.low.tolist(),
        "high": box.high.tolist(),
    }


def _env_spec(header: Header) -> str:
    if header.env_spec.id not in gymnasium.registry:
        raise UnknownNameError("environment", header.env_spec.id, _own_environments())
    spec = copy.deepcopy(gymnasium.spec(header.env_spec.id))
    spec.kwargs.update(header.local_spec().kwargs)
    return spec.to_json()


def _own_environments() -> list[str]:
    return [name for name in gymnasium.registry if name.startswith("FleetTools/")]
