"""How a policy does while it is trained: rollouts in scenes that nothing is learned from."""

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.dataset import Dataset
from fleet_tools.dataset.header import Header, remake_environment
from fleet_tools.envs.outcomes import SIMULATION_ERROR, SUCCESS, WORKER_ERROR
from fleet_tools.errors import SimulationError
from fleet_tools.parallel import workers
from fleet_tools.rollouts.episode import rollout
from fleet_tools.sim.seeds import VALIDATION

Job = tuple[str, int]
"""The task's name, and the scene's seed."""


def try_out_in(
    folders: Sequence[str | Path], episodes: int, blueprint: Blueprint, count: int = 0
) -> Callable[[Checkpoint], dict[str, dict[str, Any]] | None]:
    """Returns what tries policies of a blueprint, once it is known that they can be tried.

    Args:
        folders: Of the data sets they learn from.
        episodes: In each environment; 0 tries nothing, and returns None each time.
        blueprint: Of the policies.
        count: See `roll_out`, which tries them.

    Raises:
        LayoutError: They cannot act in these environments.
        FleetToolsError: The data sets cannot be read, or the environments not be made here.
    """
    if episodes == 0:
        return lambda checkpoint: None
    headers = [Dataset(folder).header for folder in folders]
    for env in environments(headers, blueprint).values():
        env.close()
    return partial(roll_out, headers, episodes, count=count)


def roll_out(
    headers: Sequence[Header],
    episodes: int,
    checkpoint: Checkpoint,
    *,
    count: int = 0,
    timeout_s: float = 300.0,
) -> dict[str, dict[str, Any]]:
    """Runs a policy in the first scenes of `seeds.VALIDATION`, the same ones each time.

    Args:
        headers: Of the data sets it learns from, whose environments it is to act in.
        episodes: In each environment.
        checkpoint: The policy.
        count, timeout_s: See `workers.run`.

    Returns:
        By the task's name: "episodes", "successes", how many had which of the "outcomes", and
        which scenes were "solved", by their places.

    Raises:
        LayoutError: The policy cannot act in these environments.
        FleetToolsError: They cannot be made here.
    """
    scenes = VALIDATION[:episodes]
    outcomes: dict[str, dict[int, str]] = {header.task.name: {} for header in headers}
    jobs = ((task, seed) for task in outcomes for seed in scenes)
    make_work = partial(make_rollouts, tuple(headers), checkpoint)
    results = workers.run(partial(next, jobs, None), make_work, count=count, timeout_s=timeout_s)
    with contextlib.closing(results):
        for (task, seed), outcome in results:
            lost = isinstance(outcome, workers.Lost)
            outcomes[task][scenes.index(seed)] = WORKER_ERROR if lost else outcome
    return {
        task: {
            "episodes": len(came),
            "successes": sum(outcome == SUCCESS for outcome in came.values()),
            "outcomes": dict(sorted(Counter(came.values()).items())),
            "solved": sorted(place for place, outcome in came.items() if outcome == SUCCESS),
        }
        for task, came in outcomes.items()
    }


def make_rollouts(headers: Sequence[Header], checkpoint: Checkpoint) -> Callable[[Job], str]:
    """Returns what runs an episode, and says its outcome.

    Raises:
        LayoutError, FleetToolsError: See `roll_out`.
    """
    from fleet_tools.baselines.policies.policy import NetworkPolicy

    policy, envs = NetworkPolicy(checkpoint), environments(headers, checkpoint.blueprint)

    def run(job: Job) -> str:
        task, seed = job
        try:
            return rollout(envs[task], policy, seed=seed).outcome
        except SimulationError:  # the scene cannot even begin
            return SIMULATION_ERROR

    return run


def environments(headers: Sequence[Header], blueprint: Blueprint) -> dict[str, gymnasium.Env]:
    """Makes the environments of data sets, one for each task, by its name.

    Raises:
        LayoutError: A policy cannot act in them.
        FleetToolsError: They cannot be made here.
    """
    made = {}
    for header in headers:
        if header.task.name not in made:
            made[header.task.name] = env = remake_environment(header)
            blueprint.require_environment(env)
    return made
