"""One attempt at a demonstration: the unit of collecting, the same wherever it is made."""

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from fleet_tools.envs.outcomes import NOT_REPRODUCIBLE, WORKER_ERROR
from fleet_tools.errors import DatasetError
from fleet_tools.policies.sources import PolicySource, find
from fleet_tools.registration import make_environment
from fleet_tools.rollouts.episode import (
    Episode,
    NoEpisode,
    StoredActions,
    first_difference,
    rollout,
    try_episode,
)
from fleet_tools.sim.seeds import TRAINING

# Data sets and Drake are imported once something is to be attempted.
if TYPE_CHECKING:
    from fleet_tools.dataset import Record
    from fleet_tools.dataset.header import Header


def scene_seed(seed: int, attempt: int) -> int:
    """Returns the seed of an attempt's scene, one of `fleet_tools.sim.seeds.TRAINING`.

    Data sets of different seeds share no scenes.
    """
    drawn = int(np.random.SeedSequence([seed, attempt]).generate_state(1, np.uint64)[0])
    return drawn % len(TRAINING)


def collect_episode(
    task: str,
    seed: int,
    *,
    policy: str = "expert",
    **keywords: Any,
) -> Episode:
    """Collects one episode; the same arguments give the same episode.

    Args:
        task: Name of a task of the package, or path of a task file.
        seed: Of the scene.
        policy: See `fleet_tools.policies.sources`.
        keywords: Of the environment.

    Raises:
        FleetToolsError: There is no such task or policy, or the scene cannot begin.
    """
    from fleet_tools.policies.guarded import make_guarded

    found = find(policy)
    env = make_environment(task=task, **{**found.environment, **keywords})
    try:
        return rollout(env, make_guarded(found, env, seed), seed=seed)
    finally:
        env.close()


def make_attempts(
    header: "Header", policy: PolicySource, verify: bool
) -> Callable[[int], tuple["Record", bytes | None]]:
    """Returns what makes a data set's attempts, by number: their records, and files to store.

    Args:
        header: Of the data set, with all that an attempt depends on.
        policy: The one that the header names; made anew for each attempt, which so does not depend
            on those before.
        verify: Whether to run each episode's actions again; one that does not come out bit for
            bit is "not_reproducible".

    Raises:
        DatasetError: Other versions are installed here than where the data set was begun.
        FleetToolsError: The environment cannot be made here.
    """
    from fleet_tools.dataset import episode_file
    from fleet_tools.dataset.header import installed_packages, remake_environment
    from fleet_tools.policies.guarded import make_guarded

    if installed_packages() != header.packages:
        raise DatasetError(
            f"The data set is made with {header.packages}, but a worker has "
            f"{installed_packages()}, which may give other bits. Install the same on all machines."
        )
    env = remake_environment(header)

    def collect(seed: int) -> Episode:
        episode = rollout(env, make_guarded(policy, env, seed), seed=seed)
        return _verified(env, episode) if verify and episode.succeeded else episode

    def make(attempt: int) -> tuple["Record", bytes | None]:
        record, episode = attempt_episode(header.seed, attempt, collect)
        record = record.model_copy(update={"verified": verify and record.success})
        kept = episode is not None and (record.success or header.keep_failures)
        return record, episode_file.to_bytes(episode, attempt) if kept else None

    return make


def attempt_episode(
    seed: int, attempt: int, collect: Callable[[int], Episode]
) -> tuple["Record", Episode | None]:
    """Makes an attempt, and takes down what came of it.

    Args:
        seed: Of the data set.
        attempt: Its number.
        collect: Makes the episode of a scene's seed.

    Raises:
        FleetToolsError: What is wrong with every attempt, such as a missing library.
    """
    from fleet_tools.dataset import Record

    begun = time.perf_counter()
    scene = scene_seed(seed, attempt)
    came = try_episode(lambda: collect(scene))
    seconds = round(time.perf_counter() - begun, 3)
    record = Record(attempt=attempt, seed=scene, seconds=seconds, **_facts(came))
    return record, came if isinstance(came, Episode) else None


def lost_attempt(seed: int, attempt: int, reason: str) -> "Record":
    """Returns the record of an attempt that no worker survived."""
    from fleet_tools.dataset import Record

    scene = scene_seed(seed, attempt)
    came = NoEpisode(WORKER_ERROR, reason)
    return Record(attempt=attempt, seed=scene, seconds=0.0, **_facts(came))


def _verified(env: gymnasium.Env, episode: Episode) -> Episode:
    again = rollout(env, StoredActions(episode.actions), scene=episode.scene)
    difference = first_difference(episode, again)
    if difference is None:
        return episode
    what = f"run again, it differs from step {difference.step} on: {', '.join(difference.what)}"
    return replace(episode, outcome=NOT_REPRODUCIBLE, error=what)


def _facts(episode: Episode | NoEpisode) -> dict[str, Any]:
    from fleet_tools.dataset.reader import last_digest

    if isinstance(episode, NoEpisode):
        return {"success": False, "steps": 0, **asdict(episode)}
    return {
        "outcome": episode.outcome,
        "success": episode.succeeded,
        "steps": len(episode),
        "tool": episode.scene.tool,
        "object": episode.scene.object,
        "state_digest": last_digest(episode),
        "error": episode.error,
        "info": dict(episode.info),
    }
