"""One episode of an evaluation, the same wherever it is made."""

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import gymnasium

from fleet_tools.dataset.header import other_versions
from fleet_tools.dataset.reader import last_digest
from fleet_tools.envs.outcomes import WORKER_ERROR
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.protocol import Protocol, Trial, task_digests
from fleet_tools.evaluation.result import EpisodeResult, Result, decode_actions, encode_actions
from fleet_tools.policies.guarded import GuardedPolicy
from fleet_tools.policies.sources import PolicySource
from fleet_tools.registration import make_environment
from fleet_tools.rollouts.episode import (
    Episode,
    NoEpisode,
    Policy,
    StoredActions,
    rollout,
    try_episode,
)
from fleet_tools.sim.scene import Scene, sample_scene


def make_trials(result: Result, policy: PolicySource) -> Callable[[Trial], EpisodeResult]:
    """Returns what runs trials, with an environment and a policy of its own.

    Args:
        result: Who is evaluated, by what.
        policy: Where the policy comes from.

    Raises:
        ResultError: Other versions or task files are here than where the evaluation was begun.
    """
    require_same_here(result)
    environment_of = one_at_a_time(**result.policy.environment)
    acting: tuple[gymnasium.Env, GuardedPolicy] | None = None

    def run(trial: Trial) -> EpisodeResult:
        nonlocal acting
        env = environment_of(trial.task)
        # What the package's own draw must not depend on what they did before.
        if acting is None or env is not acting[0] or policy.kind == "built_in":
            acting = env, GuardedPolicy(partial(policy.make, env, trial.seed))
        return run_trial(*acting, result.protocol, trial)

    return run


def one_at_a_time(**keywords: Any) -> Callable[[str], gymnasium.Env]:
    """Returns what gives the environment of a task, and closes that of the task before.

    Args:
        keywords: Of all environments.
    """
    present: tuple[str, gymnasium.Env] | None = None

    def environment_of(task: str) -> gymnasium.Env:
        nonlocal present
        if present is None or present[0] != task:
            if present is not None:
                present[1].close()
            present = task, make_environment(task=task, **keywords)
        return present[1]

    return environment_of


def run_trial(
    env: gymnasium.Env, policy: Policy, protocol: Protocol, trial: Trial
) -> EpisodeResult:
    """Runs a trial, and takes down what came of it.

    Args:
        env: An environment of the trial's task.
        policy: Reset after the environment.
        protocol: Whose trial it is.
        trial: Which scene.

    Raises:
        FleetToolsError: What is wrong with every trial, such as a missing library.
    """
    begun = time.perf_counter()
    scene = scene_of(env, protocol, trial)
    came = try_episode(lambda: rollout(env, policy, scene=scene))
    return EpisodeResult(
        **_which(trial),
        tool=scene.tool,
        object=scene.object,
        scene_digest=scene.digest(),
        seconds=round(time.perf_counter() - begun, 3),
        **_facts(came),
    )


def lost_trial(trial: Trial, reason: str) -> EpisodeResult:
    """Returns what is taken down of a trial that no worker survived."""
    came = NoEpisode(WORKER_ERROR, reason)
    return EpisodeResult(**_which(trial), seconds=0.0, **_facts(came))


def rerun(env: gymnasium.Env, protocol: Protocol, episode: EpisodeResult) -> list[str]:
    """Runs an episode's stored actions again, without its policy; says what comes out otherwise.

    Args:
        env: An environment of the episode's task.
        protocol: Whose trial it was.
        episode: One that began; nothing can be said about others.

    Returns:
        A sentence for each difference, such as "steps: 31 in the file, 60 here"; none if the
        episode is what it says.
    """
    actions = StoredActions(decode_actions(episode.actions))
    again = run_trial(env, actions, protocol, episode)
    compared = ["scene_digest", "state_digest", "steps", "outcome", "success", "success_once"]
    return [
        f"{name}: {getattr(episode, name)} in the file, {getattr(again, name)} here"
        for name in compared
        if getattr(episode, name) != getattr(again, name)
    ]


def scene_of(env: gymnasium.Env, protocol: Protocol, trial: Trial) -> Scene:
    """Returns a trial's scene.

    Args:
        env: An environment of its task.
        protocol: Whose trial it is.
        trial: Which.
    """
    task = env.unwrapped.task
    return sample_scene(task, trial.seed, split=trial.split, randomization=protocol.randomization)


def require_same_here(result: Result) -> None:
    """Sees to it that episodes come out here as where a result was begun.

    Raises:
        ResultError: Versions or task files are others here.
    """
    digests = task_digests(result.protocol)
    others = [
        f"{name} {then}, here {now}"
        for name, (then, now) in other_versions(result.packages).items()
    ] + [
        f"the task {name} {digest}, here {digests[name]}"
        for name, digest in result.task_digests.items()
        if digests[name] != digest
    ]
    if others:
        raise ResultError(
            f"The result is of {'; '.join(others)}; that may give other bits. Use the same."
        )


def _which(trial: Trial) -> dict[str, Any]:
    return trial.model_dump(include=set(Trial.model_fields))


def _facts(episode: Episode | NoEpisode) -> dict[str, Any]:
    if isinstance(episode, NoEpisode):
        return {"success": False, "success_once": False, "steps": 0, **asdict(episode)}
    return {
        "outcome": episode.outcome,
        "success": episode.succeeded,
        "success_once": bool(episode.success.any()),
        "steps": len(episode),
        "state_digest": last_digest(episode),
        "actions": encode_actions(episode.actions),
        "error": episode.error,
        "info": dict(episode.info),
    }
