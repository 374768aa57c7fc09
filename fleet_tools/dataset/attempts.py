"""One attempt at a demonstration: the unit of collection, the same in every process."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

from fleet_tools.dataset import episode_file
from fleet_tools.dataset.header import Header
from fleet_tools.dataset.stored_episode import AttemptRecord
from fleet_tools.envs.outcomes import NOT_REPRODUCIBLE, SUCCESS
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import DatasetError
from fleet_tools.policies.policy import Policy, StoredActions, make_guarded
from fleet_tools.policies.sources import PolicySource, find_policy
from fleet_tools.rollouts.agreement import REPEAT, require_repeated
from fleet_tools.rollouts.episode import Episode, first_difference
from fleet_tools.rollouts.rollout import Attempt, attempt, rollout
from fleet_tools.sim.splits import TRAINING
from fleet_tools.storage.provenance import installed_packages


def scene_seed(seed: int, attempt: int) -> int:
    """Returns the seed of an attempt's scene, one of `fleet_tools.sim.splits.TRAINING`.

    Args:
        seed: Seed of the dataset; datasets with different seeds share no scenes.
        attempt: Number of the attempt.
    """
    drawn = int(np.random.SeedSequence([seed, attempt]).generate_state(1, np.uint64)[0])
    return drawn % len(TRAINING)


def collect_episode(
    task: str,
    seed: int,
    *,
    policy: str = "expert",
    **env_kwargs: Any,
) -> Episode:
    """Collects one episode; the same arguments give the same episode.

    Args:
        task: Name of a task of the package, or path of a task file.
        seed: Seed of the scene.
        policy: See `fleet_tools.policies.sources`.
        env_kwargs: Other keyword arguments of the environment.

    Raises:
        FleetToolsError: There is no such task or policy, or the scene cannot begin.
    """
    found = find_policy(policy)
    env = EnvSpec.of(task=task, **{**found.env_kwargs, **env_kwargs}).make_tool_use()
    try:
        return rollout(env, make_guarded(found, env, seed), seed=seed)
    finally:
        env.close()


def make_attempts(
    header: Header, policy: PolicySource, verify: bool
) -> Callable[[int], tuple[AttemptRecord, bytes | None]]:
    """Returns a function that makes a dataset's attempts by number.

    Asked for `REPEAT`, it makes the first attempt of a policy of others again, see
    `require_repeated`; the result says nothing then.

    Args:
        header: Header of the dataset, with all that an attempt depends on.
        policy: The policy that the header names, made once; built-in ones for each attempt.
        verify: Whether to run each success again from its actions; one that does not agree bit
            for bit is "not_reproducible".

    Returns:
        A function from a number to the attempt's record, and its episode's file if it is stored.

    Raises:
        DatasetError: Other versions are installed here than where the dataset was begun.
        FleetToolsError: The environment cannot be made here.
    """
    require_versions(header)
    env = header.make_env(trusted=True)  # the user named this task file to collect with it

    present: Policy | None = None
    first: tuple[int, np.ndarray] | None = None

    def collect(seed: int) -> Episode:
        nonlocal present
        if present is None or policy.kind == "built_in":
            present = make_guarded(policy, env, seed)
        episode = rollout(env, present, seed=seed)
        return verified(env, episode) if verify and episode.outcome == SUCCESS else episode

    def repeat() -> Any:
        if first is not None and policy.is_foreign:
            number, actions = first
            again = collect(scene_seed(header.seed, number)).actions
            require_repeated(policy.name, f"attempt {number}", actions, again)

    def make(number: int) -> tuple[AttemptRecord, bytes | None]:
        nonlocal first
        if number == REPEAT:
            return repeat()
        seed = scene_seed(header.seed, number)
        result = attempt(lambda: collect(seed))
        if first is None and result.episode is not None and len(result.episode):
            first = number, result.episode.actions
        record = attempt_record(header.seed, number, result)
        record = record.model_copy(update={"verified": verify and record.success})
        if result.episode is None or not (record.success or header.keep_failures):
            return record, None
        return record, episode_file.to_bytes(result.episode, number, header.images)

    return make


def require_versions(header: Header) -> None:
    """Checks that the packages on which the bits of a dataset depend are those installed here.

    Raises:
        DatasetError: They are not.
    """
    here = installed_packages(header.env_spec.arena.packages)
    if here != header.packages:
        raise DatasetError(
            f"The dataset was made with {header.packages}, but this process has {here}, so results "
            "may differ in their bits. Install the same versions on all machines."
        )


def attempt_record(seed: int, number: int, result: Attempt) -> AttemptRecord:
    """Returns the record of an attempt.

    Args:
        seed: Seed of the dataset.
        number: Number of the attempt.
        result: Its result.
    """
    scene = None if result.episode is None else result.episode.scene
    return AttemptRecord(
        attempt=number,
        seed=scene_seed(seed, number),
        tool=None if scene is None else scene.tool,
        object=None if scene is None else scene.object,
        **result.facts(),
    )


def verified(env: gymnasium.Env, episode: Episode) -> Episode:
    """Returns an episode that agrees bit for bit when it runs again, or else "not_reproducible".

    Args:
        env: The environment in which it was made.
        episode: The episode.
    """
    again = rollout(env, StoredActions(episode.actions), scene=episode.scene)
    difference = first_difference(episode, again)
    if difference is None:
        return episode
    error = f"run again, it differs from step {difference.step} on: {', '.join(difference.what)}"
    return replace(episode, outcome=NOT_REPRODUCIBLE, error=error)
