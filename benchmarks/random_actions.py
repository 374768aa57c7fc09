"""Attacks the simulation with random and extreme actions: `python benchmarks/random_actions.py`.

    python benchmarks/random_actions.py --tool spatula --episodes 100 --json

Tools and objects are drawn from all; all randomization is on, and seeds are fixed.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from scaffold import TaskSelection, main_of, print_now, table_head, table_row

from fleet_tools.config.values import Count, Seed
from fleet_tools.envs.outcomes import (
    OBJECT_LOST,
    SIMULATION_ERROR,
    SUCCESS,
    TIME_LIMIT,
    WORKER_ERROR,
)
from fleet_tools.parallel.workers import LostJob, WorkerOptions
from fleet_tools.utils import cli

# Drake is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    import numpy as np

    from fleet_tools.envs.tool_use_env import ToolUseEnv

_COLUMNS = (TIME_LIMIT, OBJECT_LOST, SUCCESS, SIMULATION_ERROR, WORKER_ERROR)
_HEADER = table_head(["task", "actions", "episodes", *_COLUMNS])


class RandomActionsOptions(cli.Options):
    """Runs episodes with random and extreme actions, and counts their outcomes.

    Actions are drawn anew in every step ("uniform"); of entries -1 and 1, drawn once ("corner") or
    held for 2 to 12 steps ("corners"); or sinusoids of amplitude 1 with drawn periods and phases
    ("sinusoids"). The kinds come in turn.

    Exit codes:
    0: no simulation error, and no worker was lost.
    1: there was one.
    2: it cannot begin.
    130: Ctrl-C.
    """

    tasks: TaskSelection = TaskSelection()
    episodes: Count = 250
    """Number of episodes of each task."""
    first_seed: Seed = 0
    """Seed of the first episode; the others follow."""
    workers: WorkerOptions = WorkerOptions()


@dataclass(frozen=True)
class RandomEpisode:
    """An episode that is to be run.

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
    """How an episode ended.

    Attributes:
        job: The episode.
        models: Its tool and object.
        outcome: Its outcome.
        steps: Number of its steps.
        error: Error of the simulation or of the worker.
    """

    job: RandomEpisode
    models: str
    outcome: str
    steps: int
    error: str | None


def _attack(options: RandomActionsOptions) -> int:
    tasks = options.tasks.names_or_paths()
    print_now(options, _HEADER)
    rows: list[dict[str, Any]] = []
    endings: list[Ending] = []
    jobs = (
        RandomEpisode(task, list(KINDS)[k % len(KINDS)], options.first_seed + k)
        for task in tasks
        for k in range(options.episodes)
    )
    for job, result in options.workers.run(jobs, _make_run):
        if isinstance(result, LostJob):
            result = Ending(job, "unknown models", WORKER_ERROR, 0, result.reason)
        endings.append(result)
        of_task = [ending for ending in endings if ending.job.task == job.task]
        if len(of_task) == options.episodes:
            for row in _rows(of_task):
                rows.append(row)
                print_now(options, _as_text(row))
    errors = [
        asdict(ending) for ending in endings if ending.outcome in (SIMULATION_ERROR, WORKER_ERROR)
    ]
    for error in errors:
        text = "{outcome} of {models} in step {steps}, {job}: {error}"
        print_now(options, text.format(**error))
    if options.json_output:
        options.report({"rows": rows, "errors": errors}, str)
    return cli.FAILED if errors else cli.OK


def _make_run() -> Callable[[RandomEpisode], Ending]:
    """Returns the function that runs a job; it keeps the environment of the last task."""
    from fleet_tools.envs.spec import EnvSpec

    environments: dict[str, ToolUseEnv] = {}

    def run(job: RandomEpisode) -> Ending:
        if job.task not in environments:
            for env in environments.values():
                env.close()
            environments.clear()
            environments[job.task] = EnvSpec.of(task=job.task, split="all").make_tool_use()
        return run_episode(environments[job.task], job)

    return run


def run_episode(env: "ToolUseEnv", job: RandomEpisode) -> Ending:
    """Runs an episode, and returns how it ended."""
    import numpy as np

    actions = KINDS[job.actions](np.random.default_rng(job.seed))
    env.reset(seed=job.seed)
    models = f"{env.scene.tool} on {env.scene.object}"
    for steps, action in enumerate(actions, 1):
        _, _, terminated, truncated, info = env.step(action.astype(np.float32))
        if terminated or truncated:
            return Ending(job, models, info["outcome"], steps, info.get("error"))
    raise AssertionError("actions never end")


def _uniform(generator: "np.random.Generator") -> Iterator["np.ndarray"]:
    while True:
        yield generator.uniform(-1, 1, 6)


def _corner(generator: "np.random.Generator") -> Iterator["np.ndarray"]:
    corner = generator.choice([-1.0, 1.0], 6)
    while True:
        yield corner


def _corners(generator: "np.random.Generator") -> Iterator["np.ndarray"]:
    while True:
        corner = generator.choice([-1.0, 1.0], 6)
        for _ in range(generator.integers(2, 13)):
            yield corner


def _sinusoids(generator: "np.random.Generator") -> Iterator["np.ndarray"]:
    import numpy as np

    periods, phases = generator.uniform(2, 40, 6), generator.uniform(0, 2 * np.pi, 6)
    step = 0
    while True:
        yield np.sin(2 * np.pi * step / periods + phases)
        step += 1


KINDS = {"uniform": _uniform, "corner": _corner, "corners": _corners, "sinusoids": _sinusoids}
"""Makes the actions of an episode from a generator, by kind."""


def _rows(endings: list[Ending]) -> Iterator[dict[str, Any]]:
    """Yields the counts of a task's outcomes, by kind of actions."""
    for kind in KINDS:
        of_kind = [ending for ending in endings if ending.job.actions == kind]
        outcomes = Counter(ending.outcome for ending in of_kind)
        yield {
            "task": endings[0].job.task,
            "actions": kind,
            "episodes": len(of_kind),
            "outcomes": dict(outcomes),
        }


def _as_text(row: dict[str, Any]) -> str:
    counts = (str(row["outcomes"].get(outcome, 0)) for outcome in _COLUMNS)
    return table_row([row["task"], row["actions"], str(row["episodes"]), *counts])


main = main_of(__file__, RandomActionsOptions, _attack)

if __name__ == "__main__":
    sys.exit(main())
