"""Episodes with actions that nobody should imitate, and readers of them in every export format."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
from support.small_datasets import Drawn, Layout, a_header, write

from fleet_tools.dataset import Dataset
from fleet_tools.dataset.samples import Samples

OBSERVATION: Layout = {"joint_position": ((7,), "float32"), "wrist_rgb": ((32, 32, 3), "uint8")}


@dataclass(frozen=True, eq=False)
class Step:
    """A step as a learner reads it."""

    dataset: int
    attempt: int
    step: int
    joints: np.ndarray
    action: np.ndarray
    executed: np.ndarray
    imitate: bool
    last: bool = False

    def content(self) -> tuple:
        """Returns everything but whether it is the last, for comparison bit for bit."""
        arrays = (self.joints, self.action, self.executed)
        numbers = (self.dataset, self.attempt, self.step, bool(self.imitate))
        return (*numbers, *(each.tobytes() for each in arrays))


def random_dataset(folder: Path, seed: int = 3, labelled: bool = True) -> Dataset:
    """Writes a dataset of random numbers, of which one attempt has failed."""
    successes = [True, True, False, True]
    return write(folder, Drawn([9, 1, 4, 12], successes, seed, labelled), a_header(OBSERVATION))


def of_samples(*folders: Path) -> list[Step]:
    """Returns the steps of all successful episodes of some datasets, as `Samples` has them."""
    samples = Samples(folders)
    batch = samples.gather(range(len(samples)))
    numbers = [
        (folders.index(episode.folder), episode.record.attempt, step)
        for episode in samples.episodes
        for step in range(episode.record.steps)
    ]
    columns = (batch[name] for name in ("action", "executed_action", "imitate"))
    rows = zip(numbers, batch["observation"]["joint_position"], *columns, strict=True)
    return [Step(*number, *rest) for number, *rest in rows]


def of_export(format_name: str, output: Path) -> list[list[Step]]:
    """Returns the steps that learners read, by what they take for an episode."""
    reader = {"lerobot": _lerobot, "minari": _minari, "robomimic": _robomimic}[format_name]
    return [
        [
            Step(dataset, attempt, first + k, *row, last=k == len(rows) - 1)
            for k, row in enumerate(rows)
        ]
        for (dataset, attempt, first), columns in reader(output)
        for rows in [list(zip(*columns, strict=True))]
    ]


def others_of(format_name: str, output: Path) -> list[tuple[int, int, bytes]]:
    """Returns attempt, step and executed action of the steps that learners do not read."""
    if format_name == "lerobot":
        table = pq.read_table(output / "not_imitated").to_pydict()
        actions = np.array(table["executed_action"], np.float32)
        assert not any(table["imitate"])
        numbers = zip(table["attempt"], table["step"], strict=True)
    else:
        known = {
            (step.attempt, step.step) for each in of_export(format_name, output) for step in each
        }
        path = output if format_name == "robomimic" else next(output.rglob("whole.hdf5"))
        with h5py.File(path) as file:
            rows = [
                (int(name.removeprefix("attempt_")), step, action)
                for name, episode in file["whole"].items()  # pyright: ignore
                for step, action in enumerate(episode["actions"][()])
            ]
        outside = [row for row in rows if row[:2] not in known]
        numbers = [row[:2] for row in outside]
        actions = [row[2] for row in outside]
    return sorted((*n, action.tobytes()) for n, action in zip(numbers, actions, strict=True))


Read = Iterator[tuple[list[int], tuple[Any, ...]]]
"""Dataset, attempt, first step, and joints, actions, executed actions and mask of each episode."""


def _lerobot(output: Path) -> Read:
    table = pq.read_table(output / "data").to_pydict()
    names = ("observation.state", "action", "executed_action")
    columns = [np.array(table[name], np.float32) for name in names]
    for row in pq.read_table(output / "meta/episodes").to_pylist():
        rows = slice(row["dataset_from_index"], row["dataset_to_index"])
        assert table["frame_index"][rows] == list(range(row["length"]))
        assert table["next.done"][rows] == [False] * (row["length"] - 1) + [True]
        yield (
            [row["dataset"], row["attempt"], row["first_step"]],
            (*(each[rows] for each in columns), table["imitate"][rows]),
        )


def _minari(output: Path) -> Read:
    minari = pytest.importorskip("minari")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(output))
        (name,) = minari.list_local_datasets()
        loaded = minari.load_dataset(name)
        episodes = list(loaded.iterate_episodes())
        metadata = loaded.storage.get_episode_metadata(range(len(episodes)))
        assert sum(map(len, episodes)) == loaded.total_steps
    for episode, attributes in zip(episodes, metadata, strict=True):
        joints = episode.observations["joint_position"]
        assert len(joints) == len(episode) + 1
        infos = episode.infos
        columns = (joints[:-1], episode.actions, infos["executed_actions"], infos["imitate"])
        yield [int(attributes[name]) for name in ("dataset", "id", "first_step")], columns


def _robomimic(output: Path) -> Read:
    with h5py.File(output) as file:
        data: Any = file["data"]
        assert data.attrs["total"] == sum(each.attrs["num_samples"] for each in data.values())
        for number in range(len(data)):
            demo = data[f"demo_{number}"]
            assert len(demo["actions"]) == demo.attrs["num_samples"]
            columns = (demo[name][()] for name in ("actions", "executed_actions", "imitate"))
            rows = (demo["obs/joint_position"][()], *columns)
            yield [int(demo.attrs[name]) for name in ("dataset", "attempt", "first_step")], rows
