"""Attacks the simulation with random and extreme actions: `python benchmarks/random_actions.py`.

    python benchmarks/random_actions.py --tool spatula --episodes 100 --json

Tools and objects are drawn from all; all randomization is on, and seeds are fixed.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from pydrake.systems.framework import Context, EventStatus
from scaffold import TaskSelection, main_of, print_now, report_rows

from fleet_tools.config.values import Count, Seed
from fleet_tools.envs.outcomes import (
    OBJECT_LOST,
    SIMULATION_ERROR,
    SUCCESS,
    TIME_LIMIT,
    WORKER_ERROR,
)
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.parallel.workers import LostJob, WorkerOptions
from fleet_tools.sim.simulation import Simulation
from fleet_tools.utils import cli

_OUTCOMES = (TIME_LIMIT, OBJECT_LOST, SUCCESS, SIMULATION_ERROR, WORKER_ERROR)
_PEAKS = {
    "speed": "speed, peak",
    "speed_untouched": "untouched",
    "torque": "torque, peak",
    "beyond_range_rad": "beyond range, rad",
}


class RandomActionsOptions(cli.Options):
    """Runs episodes with random and extreme actions, and counts their outcomes.

    Kinds of actions come in turn. "uniform": drawn anew in every step. "corner": entries -1 and 1,
    drawn once; "corners": held for 2 to 12 steps. "sinusoids": of amplitude 1, with drawn periods
    and phases. The last columns have the largest speed of a joint over its declared limit, and the
    same without contacts of arm, hand or tool. Then come the largest torque over its limit, and the
    distance of a joint beyond its range,
    negative within it.

    Exit codes:
    0: no simulation error, and no worker was lost.
    1: there was one.
    """

    tasks: TaskSelection = TaskSelection()
    episodes: Count = 250
    """Number of episodes of each task."""
    first_seed: Seed = 0
    """Seed of the first episode; the others follow."""
    workers: WorkerOptions = WorkerOptions()


@dataclass(frozen=True)
class RandomEpisode:
    """An episode to run.

    Attributes:
        task: Name or path of the task.
        actions: Kind of actions, see `KINDS`.
        seed: Seed of the scene and of the actions.
    """

    task: str
    actions: str
    seed: int


@dataclass(frozen=True)
class Ending:
    """The end of an episode.

    Attributes:
        job: The episode.
        models: Its tool and object.
        outcome: Its outcome.
        steps: Number of its steps.
        error: Error of the simulation or of the worker.
        peaks: Largest values of `_PEAKS` over its simulation steps.
    """

    job: RandomEpisode
    models: str
    outcome: str
    steps: int
    error: str | None
    peaks: dict[str, float]


def _attack(options: RandomActionsOptions) -> int:
    endings: list[Ending] = []
    jobs = (
        RandomEpisode(task, list(KINDS)[k % len(KINDS)], options.first_seed + k)
        for task in options.tasks.names_or_paths()
        for k in range(options.episodes)
    )
    errors: list[dict[str, Any]] = []

    def rows() -> Iterator[dict[str, Any]]:
        for job, result in options.workers.run(jobs, _make_run):
            if isinstance(result, LostJob):
                result = Ending(job, "unknown models", WORKER_ERROR, 0, result.reason, {})
            endings.append(result)
            if result.outcome in (SIMULATION_ERROR, WORKER_ERROR):
                errors.append(asdict(result))
            of_task = [ending for ending in endings if ending.job.task == job.task]
            if len(of_task) == options.episodes:
                yield from _rows(of_task)

    columns = ["task", "actions", "episodes", *_OUTCOMES, *_PEAKS.values()]
    report_rows(options, columns, rows(), _cells, errors=errors)
    for error in errors:
        text = "{outcome} of {models} in step {steps}, {job}: {error}"
        print_now(options, text.format(**error))
    return cli.FAILED if errors else cli.OK


def _make_run() -> Callable[[RandomEpisode], Ending]:
    """Returns the function that runs a job; it keeps the environment of the last task."""
    environments: dict[str, ToolUseEnv] = {}

    def run(job: RandomEpisode) -> Ending:
        if job.task not in environments:
            for env in environments.values():
                env.close()
            environments.clear()
            environments[job.task] = EnvSpec.of(task=job.task, split="all").make_tool_use()
        return run_episode(environments[job.task], job)

    return run


def run_episode(env: ToolUseEnv, job: RandomEpisode) -> Ending:
    """Runs an episode, and returns its end."""
    actions = KINDS[job.actions](np.random.default_rng(job.seed))
    env.reset(seed=job.seed)
    models, peaks = f"{env.scene.tool} on {env.scene.object}", dict.fromkeys(_PEAKS, -np.inf)
    simulation = env.simulation
    assert simulation is not None  # during an episode
    simulation._simulator.set_monitor(_watch(simulation, peaks))  # a benchmark looks inside
    for steps, action in enumerate(actions, 1):
        _, _, terminated, truncated, info = env.step(action.astype(np.float32))
        if terminated or truncated:
            return Ending(job, models, info["outcome"], steps, info.get("error"), peaks)
    raise AssertionError("actions never end")


def _watch(simulation: Simulation, peaks: dict[str, float]) -> Any:
    """Returns a monitor that keeps the largest values of the arm's joints."""
    world = simulation.world
    plant, limits = world.plant, world.adjustable.arm_model.limits
    actuation = plant.get_net_actuation_output_port(world.arm)
    contact = plant.get_generalized_contact_forces_output_port(world.arm)

    def watch(root: Context) -> EventStatus:
        context = plant.GetMyContextFromRoot(root)
        q, v = plant.GetPositions(context, world.arm), plant.GetVelocities(context, world.arm)
        speed = float((np.abs(v) / limits.speed).max())
        found = {
            "speed": speed,
            "torque": float((np.abs(actuation.Eval(context)) / limits.effort).max()),
            "beyond_range_rad": float(np.maximum(q - limits.upper, limits.lower - q).max()),
        }
        if not np.any(contact.Eval(context)):
            found["speed_untouched"] = speed
        for name, value in found.items():
            peaks[name] = max(peaks[name], value)
        return EventStatus.Succeeded()

    return watch


def _uniform(generator: np.random.Generator) -> Iterator[np.ndarray]:
    while True:
        yield generator.uniform(-1, 1, 6)


def _corner(generator: np.random.Generator) -> Iterator[np.ndarray]:
    corner = generator.choice([-1.0, 1.0], 6)
    while True:
        yield corner


def _corners(generator: np.random.Generator) -> Iterator[np.ndarray]:
    while True:
        corner = generator.choice([-1.0, 1.0], 6)
        for _ in range(generator.integers(2, 13)):
            yield corner


def _sinusoids(generator: np.random.Generator) -> Iterator[np.ndarray]:
    periods, phases = generator.uniform(2, 40, 6), generator.uniform(0, 2 * np.pi, 6)
    step = 0
    while True:
        yield np.sin(2 * np.pi * step / periods + phases)
        step += 1


KINDS = {"uniform": _uniform, "corner": _corner, "corners": _corners, "sinusoids": _sinusoids}
"""Makes the actions of an episode from a generator, by kind."""


def _rows(endings: list[Ending]) -> Iterator[dict[str, Any]]:
    """Yields the counts of a task's outcomes, and the largest values, by kind of actions."""
    for kind in KINDS:
        of_kind = [ending for ending in endings if ending.job.actions == kind]
        if of_kind:
            yield {
                "task": of_kind[0].job.task,
                "actions": kind,
                "episodes": len(of_kind),
                "outcomes": dict(Counter(ending.outcome for ending in of_kind)),
                "peaks": {
                    name: max(each.peaks.get(name, -np.inf) for each in of_kind) for name in _PEAKS
                },
            }


def _cells(row: dict[str, Any]) -> list[str]:
    counts = (str(row["outcomes"].get(outcome, 0)) for outcome in _OUTCOMES)
    peaks = (f"{row['peaks'][name]:.3f}" for name in _PEAKS)
    return [row["task"], row["actions"], str(row["episodes"]), *counts, *peaks]


main = main_of(__file__, RandomActionsOptions, _attack)

if __name__ == "__main__":
    sys.exit(main())
