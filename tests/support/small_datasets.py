"""Small datasets of random numbers, for tests of what reads them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fleet_tools.config.tasks import load_task
from fleet_tools.dataset import AttemptRecord, Dataset, DatasetWriter, episode_file
from fleet_tools.dataset.header import ArraySpec, Header, describe
from fleet_tools.envs.array_spec import Kind
from fleet_tools.envs.outcomes import SUCCESS, TIME_LIMIT
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.perception.camera_view import CHANNELS
from fleet_tools.rollouts.episode import EXPERT_ACTIONS, LEARNER_STEPS, NOISE_STEPS, Episode
from fleet_tools.sim.scene import Scene, sample_scene

Layout = Mapping[str, tuple[tuple[int, ...], str]]
"""Shapes and dtypes of observations, by name."""

OBSERVATION: Layout = {
    "joint_position": ((7,), "float32"),
    "point_cloud": ((5, 4), "float32"),
    "ticks": ((), "int64"),
    "wrist_rgb": ((4, 3, 3), "uint8"),  # compressed image by image
}


@dataclass(frozen=True)
class Drawn:
    """The content of a small dataset."""

    steps: list[int]
    successes: list[bool]
    seed: int
    labelled: bool = False


@st.composite
def drawn(draw: st.DrawFn, most_steps: int = 5) -> Drawn:
    """Draws the content of a small dataset."""
    episodes = draw(st.integers(1, 4))
    steps, successes = st.integers(0, most_steps), st.booleans()
    return Drawn(
        steps=draw(st.lists(steps, min_size=episodes, max_size=episodes)),
        successes=draw(st.lists(successes, min_size=episodes, max_size=episodes)),
        seed=draw(st.integers(0, 2**32)),
        labelled=draw(st.booleans()),
    )


@cache
def hammer_header() -> Header:
    """Returns the header of a dataset of the hammer, which holds failures, too."""
    spec = EnvSpec.of("hammer")
    return describe(spec.make(), spec, policy="expert", seed=7, keep_failures=True)


@cache
def hammer_scene() -> Scene:
    """Returns the scene of all episodes here."""
    return sample_scene(load_task("hammer"), 0)


def array_kind(name: str) -> Kind:
    """Returns the kind of an array of these datasets."""
    if name == "point_cloud":
        return "points"
    for kind in CHANNELS:
        if name.endswith(f"_{kind}"):
            return kind
    return "state"


def a_header(observation: Layout = OBSERVATION) -> Header:
    """Returns the header of a dataset with other observations."""
    arrays = {
        name: ArraySpec(kind=array_kind(name), shape=shape, dtype=dtype, unit="1", frame=None)
        for name, (shape, dtype) in observation.items()
    }
    return hammer_header().model_copy(update={"observation": arrays})


def an_episode(
    generator: np.random.Generator,
    steps: int,
    success: bool = True,
    observation: Layout = OBSERVATION,
) -> Episode:
    """Returns an episode of random numbers."""

    def rows(shape: tuple[int, ...], dtype: str) -> np.ndarray:
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
        outcome=SUCCESS if success else TIME_LIMIT,
    )


def labels_of(seed: int, number: int, steps: int) -> dict[str, Any]:
    """Draws steps with noise and those of a learner, as an episode's `info`."""
    generator = np.random.default_rng((seed, number))
    kinds = generator.integers(0, 3, steps)
    learner = np.flatnonzero(kinds == 2).tolist()
    actions = generator.uniform(-1, 1, (len(learner), 6)).astype(np.float32)
    noise = np.flatnonzero(kinds == 1).tolist()
    return {NOISE_STEPS: noise, LEARNER_STEPS: learner, EXPERT_ACTIONS: actions.tolist()}


def to_imitate(episode: Episode) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mask of steps to imitate and the actions to imitate, step by step."""
    mask, actions = np.ones(len(episode), bool), episode.actions.copy()
    for step in episode.info.get(NOISE_STEPS, ()):
        mask[step] = False
    learner = (episode.info.get(key, ()) for key in (LEARNER_STEPS, EXPERT_ACTIONS))
    for step, action in zip(*learner, strict=True):
        actions[step] = action
    return mask, actions


def a_record(number: int, episode: Episode) -> AttemptRecord:
    """Returns the record of an attempt that made an episode."""
    return AttemptRecord(
        attempt=number,
        seed=number,
        outcome=episode.outcome,
        success=episode.outcome == SUCCESS,
        steps=len(episode),
        state_digest=episode.final_digest,
        seconds=0.5,
        tool=f"tool_{number % 2}",
        info=dict(episode.info),
    )


def write(folder: Path, content: Drawn, header: Header | None = None) -> Dataset:
    """Writes a small dataset; its observations are those of the header."""
    generator = np.random.default_rng(content.seed)
    header = header or a_header()
    observation = {name: (array.shape, array.dtype) for name, array in header.observation.items()}
    with DatasetWriter(folder, header) as writer:
        for number, steps in enumerate(content.steps):
            episode = an_episode(generator, steps, content.successes[number], observation)
            if content.labelled:
                episode = replace(episode, info=labels_of(content.seed, number, steps))
            writer.add(
                a_record(number, episode), episode_file.to_bytes(episode, number, header.images)
            )
    return Dataset(folder)
