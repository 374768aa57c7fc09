"""Policies on an arm that they have not learned on: `python benchmarks/another_arm.py RUN ...`.

    python benchmarks/another_arm.py runs/arms/hammer_panda runs/arms/hammer_ur5e --episodes 50

Such a policy reads what arms have in common (`train --observations end_effector_pose ...`): entries
of joints have another size on another arm, and are refused there.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from console import print_now, table_head, table_row
from tyro.conf import Positional, arg

from fleet_tools.config.values import Count
from fleet_tools.envs.outcomes import SIMULATION_ERROR, SUCCESS, WORKER_ERROR
from fleet_tools.parallel.workers import LostJob, WorkerOptions
from fleet_tools.utils import cli

NOTHING = "nothing"
"""Name of the control, which never moves."""


class AnotherArmOptions(cli.Options):
    """Runs the policies of training runs on several arms, and a control that does nothing.

    Each acts with its last weights in the first scenes of the validation range, which are in no
    dataset, and on one arm are the same for all policies of a task. A cell has the number of
    scenes that are solved, and a 95% Wilson interval of the rate.

    Exit codes:
    0: everything is measured.
    2: it cannot begin.
    130: Ctrl-C.
    """

    runs: Annotated[tuple[Path, ...], Positional, arg(metavar="RUN")]
    """Folders of training runs, each on demonstrations of one task by one arm."""
    robots: tuple[str, ...] = ("panda", "ur5e")
    """The arms on which they act."""
    episodes: Count = 50
    """Number of scenes of each cell."""
    workers: WorkerOptions = WorkerOptions()


@dataclass(frozen=True)
class Cell:
    """A cell of the table.

    Attributes:
        task: The task.
        learned_on: Arm of the demonstrations; `NOTHING` for the control.
        demonstrations: Number of their episodes.
        checkpoint: File of the policy; None for the control.
        robot: Arm on which it acts.
    """

    task: str
    learned_on: str
    demonstrations: int
    checkpoint: Path | None
    robot: str


def _measure_all(options: AnotherArmOptions) -> int:
    policies = [_policy_of(run) for run in options.runs]
    tasks = list(dict.fromkeys(task for task, *_ in policies))
    cells = [
        Cell(task, learned_on, demonstrations, checkpoint, robot)
        for each in tasks
        for task, learned_on, demonstrations, checkpoint in [(each, NOTHING, 0, None), *policies]
        for robot in options.robots
        if task == each
    ]
    columns = ["task", "learned on", "episodes", *(f"on the {name}" for name in options.robots)]
    print_now(options, table_head(columns))
    summaries: list[dict[str, Any]] = []
    jobs = ((cell, scene) for cell in cells for scene in range(options.episodes))
    for cell, outcomes in _complete(options, jobs):
        summaries.append(_summary(cell, outcomes))
        if cell.robot == options.robots[-1]:
            row = summaries[-len(options.robots) :]
            learned = [cell.task, cell.learned_on, str(cell.demonstrations or "")]
            print_now(options, table_row([*learned, *map(_as_text, row)]))
    if options.json_output:
        options.report({"cells": summaries}, str)
    return cli.OK


def _policy_of(run: Path) -> tuple[str, str, int, Path]:
    """Returns task and arm of a run's demonstrations, their number, and the policy's file."""
    from fleet_tools.baselines.training.record import LAST, TRAINING_RUN
    from fleet_tools.baselines.training.state import TrainingError
    from fleet_tools.dataset.dataset_folder import Dataset

    spec = TRAINING_RUN.read_document(run)
    headers = [Dataset(folder).header for folder in spec.datasets]
    of = {(each.task.name, each.robot) for each in headers}
    if len(of) > 1:
        raise TrainingError(f"{run} has learned from several tasks or arms: {sorted(of)}.")
    return *of.pop(), spec.episodes, run / LAST


def _complete(
    options: AnotherArmOptions, jobs: Iterator[tuple[Cell, int]]
) -> Iterator[tuple[Cell, list[str]]]:
    """Runs the jobs, and yields each cell with its outcomes once it is complete, in order."""
    found: dict[Cell, list[str]] = {}
    waiting: list[Cell] = []
    for (cell, _), result in options.workers.run(jobs, _make_run):
        if cell not in found:
            found[cell] = []
            waiting.append(cell)
        found[cell].append(WORKER_ERROR if isinstance(result, LostJob) else result)
        while waiting and len(found[waiting[0]]) == options.episodes:
            yield waiting[0], found[waiting.pop(0)]


def _make_run() -> Callable[[tuple[Cell, int]], str]:
    """Returns the function that runs an episode; it keeps environment and policy of a cell."""
    kept: dict[Cell, Any] = {}

    def run(job: tuple[Cell, int]) -> str:
        from fleet_tools.errors import SimulationError
        from fleet_tools.rollouts.rollout import rollout
        from fleet_tools.sim.splits import VALIDATION

        cell, scene = job
        if cell not in kept:
            for env, _ in kept.values():
                env.close()
            kept.clear()
            kept[cell] = _made(cell)
        env, policy = kept[cell]
        try:
            return rollout(env, policy, seed=VALIDATION[scene]).outcome
        except SimulationError:  # the scene cannot even begin
            return SIMULATION_ERROR

    return run


def _made(cell: Cell) -> tuple[Any, Any]:
    """Returns the environment and the policy of a cell, after checking that they fit."""
    from fleet_tools.baselines.policies.checkpoint import load_checkpoint
    from fleet_tools.baselines.policies.policy import NetworkPolicy
    from fleet_tools.envs.spec import EnvSpec
    from fleet_tools.policies.sources import find_policy

    env = EnvSpec.of(cell.task, obs_mode="state", robot=cell.robot).make()
    if cell.checkpoint is None:
        return env, find_policy("zero").make(env, 0)
    checkpoint = load_checkpoint(cell.checkpoint)
    checkpoint.blueprint.require_environment(env)
    return env, NetworkPolicy(checkpoint)


def _summary(cell: Cell, outcomes: list[str]) -> dict[str, Any]:
    """Returns the figures of a cell."""
    from collections import Counter

    from fleet_tools.utils.statistics import wilson_interval

    solved = outcomes.count(SUCCESS)
    return {
        "task": cell.task,
        "learned_on": cell.learned_on,
        "robot": cell.robot,
        "demonstrations": cell.demonstrations,
        "episodes": len(outcomes),
        "successes": solved,
        "interval": wilson_interval(solved, len(outcomes)),
        "outcomes": dict(sorted(Counter(outcomes).items())),
    }


def _as_text(summary: dict[str, Any]) -> str:
    low, high = summary["interval"]
    return f"{summary['successes']}/{summary['episodes']} ({100 * low:.0f} to {100 * high:.0f}%)"


PROGRAM = cli.Program(
    "another_arm.py", cli.Command(AnotherArmOptions, _measure_all), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
