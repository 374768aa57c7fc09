"""One trial of an evaluation, and its check by a replay of the stored actions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium

from fleet_tools.envs.recorded_env import interface_of
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.protocol import Protocol, Trial, task_digests
from fleet_tools.evaluation.result import EpisodeResult, Result, decode_actions, encode_actions
from fleet_tools.policies.confined import ConfinedPolicy
from fleet_tools.policies.policy import GuardedPolicy, Policy, StoredActions
from fleet_tools.policies.sources import PolicySource, Track
from fleet_tools.rollouts.agreement import (
    REPEAT,
    Agreement,
    distance_of_points,
    points,
    require_repeated,
)
from fleet_tools.rollouts.rollout import Attempt, attempt, rollout
from fleet_tools.sim.scene import Scene
from fleet_tools.storage.provenance import other_versions

_BITS = ("state_digest",)
_END = ("scene_digest", "steps", "outcome", "success", "success_once")


@dataclass(frozen=True)
class Rerun:
    """Result of a repeated episode.

    Attributes:
        differences: A sentence for each difference, such as "steps: 31 in the file, 60 here"; none
            if the stored result is right bit for bit.
        agreement: How it agrees. The outcome is the same if it is so in the same scene, after as
            many steps, and with or without success after any of them, whatever the bits. The
            distance is the last states'; None where one is not known.
    """

    differences: tuple[str, ...]
    agreement: Agreement


def make_trials(
    result: Result,
    policy: PolicySource,
    *,
    trusted: bool = False,
    limit_s: float | None = None,
) -> Callable[[Trial], EpisodeResult]:
    """Returns a function that runs trials, with its own environment and policy.

    Asked for `REPEAT`, it runs the first episode of a policy of others again, see
    `require_repeated`; the result says nothing then.

    Args:
        result: The evaluation.
        policy: The policy that it names.
        trusted: Whether functions that its task files name may run, see `Protocol.make_env`.
        limit_s: See `guarded`.

    Raises:
        ResultError: Versions or task files are not those with which the evaluation was begun.
    """
    require_same_versions(result)
    protocol = result.local_protocol()
    env_of = present_env(protocol, trusted=trusted, **result.policy.env_kwargs)
    present: tuple[gymnasium.Env, GuardedPolicy] | None = None
    first: EpisodeResult | None = None

    def repeat() -> Any:
        if present is not None and first is not None and policy.is_foreign:
            again = run_trial(*present, protocol, first)
            which = f"episode {first.index} of {first.task}, {first.split}"
            actions = (decode_actions(each.actions) for each in (first, again))
            require_repeated(result.policy.name, which, *actions)

    def run(trial: Trial) -> EpisodeResult:
        nonlocal present, first
        if trial == REPEAT:
            try:
                return repeat()
            finally:
                present = None  # ends the policy's process; a worker is killed after its last job
        env = env_of(trial.task)
        # Draws of built-in policies must not depend on earlier trials.
        if present is None or env is not present[0] or policy.kind == "built_in":
            present = env, guarded(policy, result.policy.track, env, trial.seed, limit_s)
            first = None
        episode = run_trial(*present, protocol, trial)
        if first is None and episode.steps:
            first = episode
        return episode

    return run


def guarded(
    policy: PolicySource,
    track: Track,
    env: gymnasium.Env,
    seed: int,
    limit_s: float | None = None,
) -> GuardedPolicy:
    """Returns a policy that is made at its first reset; its track decides its inputs.

    Args:
        policy: The policy's source.
        track: The track.
        env: The environment in which it is to act.
        seed: Seed of a policy of the package; nobody else is given it.
        limit_s: Time limit of each answer of a confined policy, s.
    """

    def make() -> Policy:
        if policy.kind == "built_in":
            return policy.make(env, seed)
        if track == "privileged":
            return policy.make(env)
        return ConfinedPolicy(policy, interface_of(env), limit_s)

    return GuardedPolicy(make)


def present_env(
    protocol: Protocol, *, trusted: bool = False, **env_kwargs: Any
) -> Callable[[str], gymnasium.Env]:
    """Returns a function from a task to its environment, which closes the one of the task before.

    Args:
        protocol: The protocol that has the tasks.
        trusted: Whether functions that its task files name may run, see `Protocol.make_env`.
        env_kwargs: Keyword arguments of all environments.
    """
    present: tuple[str, gymnasium.Env] | None = None

    def env_of(task: str) -> gymnasium.Env:
        nonlocal present
        if present is None or present[0] != task:
            if present is not None:
                present[1].close()
            present = task, protocol.make_env(task, trusted=trusted, **env_kwargs)
        return present[1]

    return env_of


def run_trial(
    env: gymnasium.Env, policy: Policy, protocol: Protocol, trial: Trial
) -> EpisodeResult:
    """Runs a trial, and returns its result.

    Args:
        env: An environment of the trial's task.
        policy: The policy; it is reset after the environment.
        protocol: The protocol.
        trial: One of its trials.

    Raises:
        FleetToolsError: An error that affects every trial, such as a missing library.
    """
    scene = trial_scene(env, protocol, trial)
    result = attempt(lambda: rollout(env, policy, scene=scene))
    ended = None if result.episode is None else unwrap(env)
    return _result(
        trial,
        result,
        tool=scene.tool,
        object=scene.object,
        scene_digest=scene.digest(),
        final_points_m=ended and points(ended.world_state()),
        contact_metrics=ended and ended.contact_metrics(),
    )


def lost_trial(trial: Trial, reason: str) -> EpisodeResult:
    """Returns the result of a trial that ended its worker, or the program, each time."""
    return _result(trial, Attempt.lost(reason))


def run_again(env: gymnasium.Env, protocol: Protocol, episode: EpisodeResult) -> EpisodeResult:
    """Runs an episode again from its stored actions, and returns its result.

    Args:
        env: An environment of the episode's task.
        protocol: The protocol.
        episode: Result of a trial that began; others cannot run again.
    """
    return run_trial(env, StoredActions(decode_actions(episode.actions)), protocol, episode)


def judge(stored: EpisodeResult, again: EpisodeResult) -> Rerun:
    """Compares the result of an episode that ran again with the stored one."""
    differing = [name for name in (*_END, *_BITS) if getattr(stored, name) != getattr(again, name)]
    distance_m = distance_of_points(stored.final_points_m, again.final_points_m)
    differences = [
        f"{name}: {getattr(stored, name)} in the file, {getattr(again, name)} here"
        for name in differing
    ]
    if "state_digest" in differing and distance_m is not None:
        differences.append(f"the last states are {distance_m:.2g} m apart")
    alike = _handled_alike(stored, again, same_bits="state_digest" not in differing)
    if not alike:
        differences.append(
            f"contact_metrics: {stored.contact_metrics} in the file, {again.contact_metrics} here"
        )
    same_outcome = alike and not {*differing}.intersection(_END)
    return Rerun(tuple(differences), Agreement(not differences, same_outcome, distance_m))


def _handled_alike(stored: EpisodeResult, again: EpisodeResult, *, same_bits: bool) -> bool:
    """Returns whether the stored contact metrics, if any, may be of the same episode here."""
    if stored.contact_metrics is None or again.contact_metrics is None:
        return stored.contact_metrics is None
    return stored.contact_metrics == again.contact_metrics or (
        not same_bits and stored.contact_metrics.resembles(again.contact_metrics)
    )


def trial_scene(env: gymnasium.Env, protocol: Protocol, trial: Trial) -> Scene:
    """Returns the scene of a trial.

    Args:
        env: An environment of the trial's task.
        protocol: The protocol.
        trial: One of its trials.
    """
    return protocol.scene(unwrap(env).task, trial)


def require_same_versions(result: Result) -> None:
    """Checks that packages and task files are those with which an evaluation was begun.

    Raises:
        ResultError: Versions or task files differ.
    """
    digests = task_digests(result.protocol)
    differing = [
        f"{name} {then}, here {now}"
        for name, (then, now) in other_versions(result.packages).items()
    ] + [
        f"the task {name} {digest}, here {digests[name]}"
        for name, digest in result.task_digests.items()
        if digests[name] != digest
    ]
    if differing:
        raise ResultError(
            f"The result was made with {'; '.join(differing)}, which may change bits of the "
            "results. Install the same versions."
        )


def _result(trial: Trial, result: Attempt, **others: Any) -> EpisodeResult:
    episode = result.episode
    return EpisodeResult(
        **trial.model_dump(include=set(Trial.model_fields)),
        **others,
        success_once=episode is not None and bool(episode.success.any()),
        actions="" if episode is None else encode_actions(episode.actions),
        **result.facts(),
    )
