"""Datasets of random numbers, for benchmarks of what reads them."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from fleet_tools.dataset import AttemptRecord, Dataset, DatasetWriter, episode_file
from fleet_tools.dataset.header import ArraySpec, Header, describe
from fleet_tools.envs.outcomes import SUCCESS
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.rollouts.episode import Episode
from fleet_tools.sim.scene import sample_scene

Observe = Callable[[Header, int, int, np.random.Generator], Mapping[str, np.ndarray]]
"""Makes the observations of an episode, from the header, its number and its number of steps."""


def make(
    folder: Path,
    steps: int,
    episode_steps: int,
    observe: Observe,
    observation: Mapping[str, ArraySpec] | None = None,
) -> Dataset:
    """Writes successful episodes of the hammer with random actions.

    Args:
        folder: Folder of the dataset.
        steps: Number of steps of all episodes together; the last may be shorter than the others.
        episode_steps: Number of steps of each of the others.
        observe: Makes the observations.
        observation: Layout of the observations, by name; that of the environment's state if None.
    """
    spec = EnvSpec.of("hammer")
    env = spec.make()
    header = describe(env, spec, policy="expert", seed=0, keep_failures=False)
    scene, generator = sample_scene(unwrap(env).task, 0), np.random.default_rng(0)
    env.close()
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
                outcome=SUCCESS,
            )
            record = AttemptRecord(
                attempt=number,
                seed=number,
                outcome=SUCCESS,
                success=True,
                steps=T,
                state_digest=episode.final_digest,
                seconds=0.0,
            )
            writer.add(record, episode_file.to_bytes(episode, number))
    return Dataset(folder)
