"""One attempt at a demonstration: the unit of collecting, the same wherever it is made."""

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from fleet_tools.episode import (
    Episode,
    NoEpisode,
    Policy,
    StoredActions,
    first_difference,
    rollout,
    try_episode,
)
from fleet_tools.errors import DatasetError, UnknownNameError
from fleet_tools.outcomes import NOT_REPRODUCIBLE, WORKER_ERROR
from fleet_tools.registration import make_environment
from fleet_tools.seeds import TRAINING

# Data sets and Drake are imported once something is to be attempted.
if TYPE_CHECKING:
    from fleet_tools.dataset import Record
    from fleet_tools.dataset.header import Header


def _expert(env: gymnasium.Env) -> Policy:
    from fleet_tools.experts.policy import ExpertPolicy

    return ExpertPolicy(env)


def _disturbed_expert(env: gymnasium.Env) -> Policy:
    from fleet_tools.experts.disturbed import DisturbedExpert

    return DisturbedExpert(env)


POLICIES: dict[str, Callable[[gymnasium.Env], Policy]] = {
    "expert": _expert,
    "disturbed_expert": _disturbed_expert,
}
"""What can collect: a policy for an environment, by name."""


def make_policy(name: str, env: gymnasium.Env) -> Policy:
    """Makes a policy.

    Raises:
        UnknownNameError: There is no such policy.
    """
    if name not in POLICIES:
        raise UnknownNameError("policy", name, POLICIES)
    return POLICIES[name](env)


def scene_seed(seed: int, attempt: int) -> int:
    """Returns the seed of an attempt's scene, one of `fleet_tools.seeds.TRAINING`.

    Data sets of different seeds share no scenes.
    """
    drawn = int(np.random.SeedSequence([seed, attempt]).generate_state(1, np.uint64)[0])
    return drawn % len(TRAINING)


def collect_episode(
    task: str,
    seed: int,
    *,
    policy: str = "expert",
    env: gymnasium.Env | None = None,
    **keywords: Any,
) -> Episode:
    """Collects one episode; the same arguments give the same episode.

    Args:
        task: Name of a task of the package, or path of a task file.
        seed: Of the scene.
        policy: See `POLICIES`.
        env: An environment of that task to use again; made for the occasion if None.
        keywords: Of the environment that is made.

    Raises:
        FleetToolsError: There is no such task or policy, or the scene cannot begin.
    """
    if env is not None:
        return rollout(env, make_policy(policy, env), seed=seed)
    env = make_environment(task=task, **keywords)
    try:
        return rollout(env, make_policy(policy, env), seed=seed)
    finally:
        env.close()


def make_attempts(header: "Header", verify: bool) -> Callable[[int], tuple["Record", bytes | None]]:
    """Returns what makes a data set's attempts, by number: their records, and files to store.

    Args:
        header: Of the data set, with all that an attempt depends on.
        verify: Whether to run each episode's actions again; one that does not come out bit for
            bit is "not_reproducible".

    Raises:
        DatasetError: Other versions are installed here than where the data set was begun.
        FleetToolsError: The environment cannot be made here.
    """
    from fleet_tools.dataset import episode_file
    from fleet_tools.dataset.header import installed_packages, remake_environment

    if installed_packages() != header.packages:
        raise DatasetError(
            f"The data set is made with {header.packages}, but a worker has "
            f"{installed_packages()}, which may give other bits. Install the same on all machines."
        )
    env = remake_environment(header)

    def collect(seed: int) -> Episode:
        episode = collect_episode(header.task.name, seed, policy=header.policy, env=env)
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
