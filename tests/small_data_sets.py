"""Small data sets of random numbers, for tests of what reads them."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from fleet_tools.config.tasks import load_task
from fleet_tools.dataset import Dataset, DatasetWriter, Record, episode_file
from fleet_tools.dataset.header import Array, describe
from fleet_tools.dataset.reader import last_digest
from fleet_tools.registration import make_environment
from fleet_tools.rollouts.episode import Episode
from fleet_tools.sim.scene import sample_scene

OBSERVATION = {
    "joint_position": ((7,), "float32"),
    "point_cloud": ((5, 4), "float32"),
    "ticks": ((), "int64"),
    "wrist_rgb": ((4, 3, 3), "uint8"),  # compressed by frame
}


@dataclass(frozen=True)
class Drawn:
    """What a small data set is to hold.

    Attributes:
        steps, successes: Of each episode.
        seed: Of the random numbers.
    """

    steps: list[int]
    successes: list[bool]
    seed: int


@st.composite
def drawn(draw, most_steps=5):
    episodes = draw(st.integers(1, 4))
    several = {"min_size": episodes, "max_size": episodes}
    return Drawn(
        steps=draw(st.lists(st.integers(0, most_steps), **several)),
        successes=draw(st.lists(st.booleans(), **several)),
        seed=draw(st.integers(0, 2**32)),
    )


@cache
def hammer_header():
    env = make_environment(task="hammer")
    return describe(env, "hammer", policy="expert", seed=7, keep_failures=True)


@cache
def hammer_scene():
    return sample_scene(load_task("hammer"), 0)


def a_header(observation=OBSERVATION):
    arrays = {
        name: Array(shape=shape, dtype=dtype, unit="1", frame=None)
        for name, (shape, dtype) in observation.items()
    }
    return hammer_header().model_copy(update={"observation": arrays})


def an_episode(generator, steps, success=True, observation=OBSERVATION):
    def rows(shape, dtype):
        numbers = 100 * generator.normal(size=(steps + 1, *shape))
        if shape[1:] == (4,):  # of points, some are absent
            numbers[..., 3] = generator.integers(-1, 2, numbers.shape[:-1])
            numbers *= numbers[..., 3:] != 0
        return np.abs(numbers).astype(dtype) if dtype == "uint8" else numbers.astype(dtype)

    return Episode(
        scene=hammer_scene(),
        observations={name: rows(*layout) for name, layout in observation.items()},
        actions=generator.uniform(-1, 1, (steps, 6)).astype(np.float32),
        rewards=np.zeros(steps),
        terminated=np.zeros(steps, bool),
        truncated=np.zeros(steps, bool),
        success=np.zeros(steps, bool),
        digests=generator.integers(0, 2**64, steps + 1, np.uint64),
        outcome="success" if success else "time_limit",
    )


def write(folder: Path, content: Drawn, header=None) -> Dataset:
    generator = np.random.default_rng(content.seed)
    header = header or a_header()
    observation = {name: (array.shape, array.dtype) for name, array in header.observation.items()}
    with DatasetWriter(folder, header) as writer:
        for number, steps in enumerate(content.steps):
            episode = an_episode(generator, steps, content.successes[number], observation)
            record = Record(
                attempt=number, seed=number, outcome=episode.outcome, success=episode.succeeded,
                steps=steps, state_digest=last_digest(episode), seconds=0.5,
                tool=f"tool_{number % 2}",
            )  # fmt: skip
            writer.add(record, episode_file.to_bytes(episode, record.attempt))
    return Dataset(folder)
