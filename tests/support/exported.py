"""Datasets for tests of exports, and readers of exported files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np
import pytest
from support.rendering import has_gl, needs_gl

from fleet_tools.dataset import AttemptRecord, Dataset, DatasetWriter, episode_file
from fleet_tools.dataset.header import describe
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import InfeasibleError
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.rollouts.episode import Episode
from fleet_tools.rollouts.rollout import rollout

MODES: dict[str, dict[str, Any]] = {
    "state": {},
    "point_cloud": {"obs_mode": "point_cloud", "cloud_size": [40, 30]},
    "rgbd": {"obs_mode": "rgbd", "camera_size": [64, 48]},
}
"""Keyword arguments of an environment in each observation mode."""

Collected = Callable[[str], Dataset]
"""Function that returns a dataset of an observation mode, as the fixture `collected`."""

each_mode = pytest.mark.parametrize(
    "mode",
    [
        # The other modes hold all of its entries.
        pytest.param("state", marks=pytest.mark.slow if has_gl() else ()),
        *(pytest.param(mode, marks=needs_gl) for mode in ("point_cloud", "rgbd")),
    ],
)


class _LimitedExpert:
    """An expert that fails after some steps."""

    def __init__(self, env: gymnasium.Env, steps: int) -> None:
        self._expert, self._remaining = ExpertPolicy(env), steps

    def reset(self) -> None:
        self._expert.reset()

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        if not self._remaining:
            raise InfeasibleError("No plan.", {})
        self._remaining -= 1
        return self._expert.act(observation)


def record_of(episode: Episode, attempt: int, **others: Any) -> AttemptRecord:
    """Returns the record of an attempt that ended as an episode, with some other facts."""
    return AttemptRecord(
        attempt=attempt,
        seed=attempt,
        outcome=episode.outcome,
        success=episode.outcome == "success",
        steps=len(episode),
        seconds=0.5,
        state_digest=episode.final_digest,
        **others,
    )


def write_collected(folder: Path, mode: str) -> Dataset:
    """Writes a dataset of two successes and three failures: stored, not stored, and empty."""
    spec = EnvSpec.of("hammer", **MODES[mode])
    env = spec.make()
    header = describe(env, spec, policy="expert", seed=0, keep_failures=True)
    with DatasetWriter(folder, header) as writer:
        for attempt, steps in enumerate([99, 3, None, 0, 99]):
            episode = rollout(env, _LimitedExpert(env, steps or 0), seed=attempt)
            record = record_of(episode, attempt, error=episode.error)
            writer.add(
                record,
                None if steps is None else episode_file.to_bytes(episode, attempt, header.images),
            )
    env.close()
    assert [record.success for record in writer.records] == [True, False, False, False, True]
    return Dataset(folder)


def same(one: Any, other: Any) -> bool:
    """Whether two arrays are the same bit for bit."""
    one, other = np.asarray(one), np.asarray(other)
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def successes(dataset: Dataset) -> list[Episode]:
    """Returns the stored successful episodes."""
    return [dataset.episode(record.attempt) for record in dataset.stored() if record.success]


def names_below(folder: Path) -> list[str]:
    """Returns the paths of all files and folders below a folder, relative to it."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def load_minari(monkeypatch: pytest.MonkeyPatch, root: Path, mode: str) -> Any:
    """Opens an exported dataset with Minari."""
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    return minari.load_dataset(f"fleet_tools/hammer/expert-{mode}-v0")


def read_robomimic(path: Path) -> list[dict[str, Any]]:
    """Returns the content of every demonstration, in order."""
    with h5py.File(path, swmr=True, libver="latest") as file:  # as robomimic opens it
        data = file.require_group("data")
        return [_read_demonstration(data.require_group(f"demo_{k}")) for k in range(len(data))]


def _read_demonstration(demonstration: h5py.Group) -> dict[str, Any]:
    return {
        "obs": _read_arrays(demonstration.require_group("obs")),
        "next_obs": _read_arrays(demonstration.require_group("next_obs")),
        "attributes": dict(demonstration.attrs),
        **_read_arrays(demonstration),
    }


def _read_arrays(group: h5py.Group) -> dict[str, np.ndarray]:
    return {
        str(name): array[()] for name, array in group.items() if isinstance(array, h5py.Dataset)
    }
