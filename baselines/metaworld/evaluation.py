"""Success rates of a policy in Meta-World's tasks."""

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fleet_tools.baselines.metaworld.tasks import META_WORLD, env_spec, read_task, task_set
from fleet_tools.envs.observation_modes import observation_kwargs
from fleet_tools.envs.outcomes import POLICY_ERROR, SIMULATION_ERROR, SUCCESS, WORKER_ERROR
from fleet_tools.parallel.workers import LostJob, WorkerOptions
from fleet_tools.policies.policy import make_guarded
from fleet_tools.policies.sources import PolicySource
from fleet_tools.rollouts.rollout import attempt, rollout
from fleet_tools.sim.splits import EVALUATION
from fleet_tools.storage.provenance import Machine, installed_packages
from fleet_tools.utils.progress import TallyBar
from fleet_tools.utils.statistics import wilson_interval

_ERRORS = (POLICY_ERROR, SIMULATION_ERROR, WORKER_ERROR)

Job = tuple[str, int]
"""Name of a task, and seed of a scene."""


def evaluate(
    policy: PolicySource,
    tasks: str,
    scenes: int,
    workers: WorkerOptions,
    env_kwargs: Mapping[str, Any],
    *,
    quiet: bool = False,
) -> dict[str, Any]:
    """Runs a policy in the first scenes of `sim.splits.EVALUATION` of each task.

    Args:
        policy: The policy, created anew for each episode.
        tasks: The tasks, see `tasks.task_set`.
        scenes: Number of scenes of each task.
        workers: Worker processes.
        env_kwargs: Keyword arguments of `env.MetaWorldEnv`, for observations.
        quiet: Whether to show no progress.

    Returns:
        Plain JSON data: observations and their encoder, versions, machine, and results by task and
        of all.

    Raises:
        FleetToolsError: There are no such tasks, or the policy cannot act in them.
    """
    members = task_set(tasks)
    for task in members:
        env = env_spec(task, tasks, **env_kwargs).make()
        policy.make(env)
        env.close()
    jobs = [(task, seed) for task in members for seed in EVALUATION[:scenes]]
    outcomes: dict[Job, str] = {}
    results = workers.run(jobs, partial(make_episodes, policy, tasks, env_kwargs))
    with (
        TallyBar(len(jobs), "episode", quiet=quiet) as bar,
        contextlib.closing(results),
    ):
        for job, result in results:
            outcomes[job] = WORKER_ERROR if isinstance(result, LostJob) else result
            bar.update(outcomes[job])
    by_task = {
        task: _rate([outcomes[task, seed] for seed in EVALUATION[:scenes]]) for task in members
    }
    return {
        "policy": str(policy),
        "arena": META_WORLD.name,
        "env_kwargs": observation_kwargs(env_kwargs),
        "packages": installed_packages(META_WORLD.packages),
        "task_files": {task: read_task(task).text for task in members},
        "machine": Machine.here().model_dump(),
        "scenes": scenes,
        "tasks": by_task,
        "all": _rate(list(outcomes.values())),
    }


def make_episodes(
    policy: PolicySource, tasks: str, env_kwargs: Mapping[str, Any]
) -> Callable[[Job], str]:
    """Returns a function that runs an episode, and returns its outcome.

    Raises:
        FleetToolsError: See `evaluate`.
    """
    envs: dict[str, Any] = {}

    def run(job: Job) -> str:
        task, seed = job
        if task not in envs:
            envs[task] = env_spec(task, tasks, **env_kwargs).make()
        env = envs[task]
        return attempt(lambda: rollout(env, make_guarded(policy, env, seed), seed=seed)).outcome

    return run


def as_text(summary: dict[str, Any]) -> str:
    """Returns the results as text, a line for each task."""
    rows = {**summary["tasks"], "all": summary["all"]}
    width = max(map(len, rows))
    return "\n".join(
        f"{name:<{width}}  {row['successes']:4} of {row['episodes']:4}: {row['rate']:6.1%} "
        f"(95% interval {row['interval_95'][0]:.1%} to {row['interval_95'][1]:.1%})"
        + (f", {row['errors']} errors" if row["errors"] else "")
        for name, row in rows.items()
    )


def _rate(outcomes: list[str]) -> dict[str, Any]:
    successes = outcomes.count(SUCCESS)
    return {
        "episodes": len(outcomes),
        "successes": successes,
        "errors": sum(outcome in _ERRORS for outcome in outcomes),
        "rate": successes / len(outcomes),
        "interval_95": wilson_interval(successes, len(outcomes)),
    }
