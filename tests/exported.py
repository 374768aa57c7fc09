"""What exports are tried on, and how some of them are read back."""

import h5py
import numpy as np
import pytest
from conftest import needs_gl

from fleet_tools.dataset import Dataset, DatasetWriter, Record, episode_file
from fleet_tools.dataset.header import describe
from fleet_tools.dataset.reader import last_digest
from fleet_tools.errors import InfeasibleError
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.registration import make_environment
from fleet_tools.rollouts.episode import rollout

MODES = {
    "state": {},
    "point_cloud": {"obs_mode": "point_cloud", "cloud_size": [40, 30]},
    "rgbd": {"obs_mode": "rgbd", "camera_size": [64, 48]},
}
each_mode = pytest.mark.parametrize(
    "mode", ["state", *(pytest.param(mode, marks=needs_gl) for mode in ("point_cloud", "rgbd"))]
)


class _GivesUp:
    """An expert that knows what to do for so many steps only."""

    def __init__(self, env, steps):
        self._expert, self._left = ExpertPolicy(env), steps

    def reset(self):
        self._expert.reset()

    def act(self, observation):
        if not self._left:
            raise InfeasibleError("No plan.", {})
        self._left -= 1
        return self._expert.act(observation)


def write_collected(folder, mode):
    """Writes a data set: two successes, and failures: one stored, one empty, one forgotten."""
    keywords = MODES[mode]
    env = make_environment(task="hammer", **keywords)
    about = describe(env, "hammer", policy="expert", seed=0, keep_failures=True, **keywords)
    with DatasetWriter(folder, about) as writer:
        for attempt, steps in enumerate([99, 3, None, 0, 99]):
            episode = rollout(env, _GivesUp(env, steps or 0), seed=attempt)
            record = Record(
                attempt=attempt, seed=attempt, outcome=episode.outcome,
                success=episode.succeeded, steps=len(episode), seconds=0.5,
                state_digest=last_digest(episode), error=episode.error,
            )  # fmt: skip
            kept = None if steps is None else episode_file.to_bytes(episode, attempt)
            writer.add(record, kept)
    assert [record.success for record in writer.records] == [True, False, False, False, True]
    return Dataset(folder)


def same(one, other):
    """Whether two arrays are the same bit for bit."""
    one, other = np.asarray(one), np.asarray(other)
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def successes(dataset):
    return [dataset.episode(record.attempt) for record in dataset.stored() if record.success]


def names_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def load_minari(monkeypatch, root, mode):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    return minari.load_dataset(f"fleet_tools/hammer/expert-{mode}-v0")


def read_robomimic(path):
    """Reads every demonstration whole, in their order."""
    with h5py.File(path, swmr=True, libver="latest") as file:  # as robomimic opens it
        data = file["data"]
        return [
            {
                "obs": {name: rows[()] for name, rows in data[f"demo_{n}/obs"].items()},
                "next_obs": {name: rows[()] for name, rows in data[f"demo_{n}/next_obs"].items()},
                "attributes": dict(data[f"demo_{n}"].attrs),
                **{
                    name: rows[()]
                    for name, rows in data[f"demo_{n}"].items()
                    if isinstance(rows, h5py.Dataset)
                },
            }
            for n in range(len(data))
        ]
