"""Data sets of random numbers, for benchmarks of what reads them."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from fleet_tools.dataset import Dataset, DatasetWriter, Record, episode_file
from fleet_tools.dataset.header import Array, Header, describe
from fleet_tools.dataset.reader import last_digest
from fleet_tools.registration import make_environment
from fleet_tools.rollouts.episode import Episode
from fleet_tools.sim.scene import sample_scene

Observe = Callable[[Header, int, int, np.random.Generator], Mapping[str, np.ndarray]]
"""Makes the observations of an episode, by the header, its number and its steps."""


def make(
    folder: Path,
    steps: int,
    episode_steps: int,
    observe: Observe,
    observation: Mapping[str, Array] | None = None,
) -> Dataset:
    """Writes successful episodes of the hammer with random actions.

    Args:
        folder: Of the data set.
        steps: Of all episodes; the last may be shorter than the others.
        episode_steps: Of each of the others.
        observe: Makes what is observed.
        observation: How it is laid out, by name; as the environment's state if None.
    """
    environment = make_environment(task="hammer")
    header = describe(environment, "hammer", policy="expert", seed=0, keep_failures=False)
    scene, generator = sample_scene(environment.task, 0), np.random.default_rng(0)
    environment.close()
    if observation is not None:
        header = header.model_copy(update={"observation": dict(observation)})
    with DatasetWriter(folder, header) as writer:
        for number in range(-(-steps // episode_steps)):
            T = min(episode_steps, steps - number * episode_steps)
            episode = Episode(
                scene=scene,
                observations=dict(observe(header, number, T, generator)),
                actions=generator.uniform(-1, 1, (T, 6)).astype(np.float32),
                rewards=np.zeros(T),
                terminated=np.zeros(T, bool),
                truncated=np.zeros(T, bool),
                success=np.zeros(T, bool),
                digests=generator.integers(0, 2**64, T + 1, np.uint64),
                outcome="success",
            )
            record = Record(
                attempt=number, seed=number, outcome="success", success=True, steps=T,
                state_digest=last_digest(episode), seconds=0.0,
            )  # fmt: skip
            writer.add(record, episode_file.to_bytes(episode, number))
    return Dataset(folder)
