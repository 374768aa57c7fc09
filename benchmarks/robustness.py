"""Compares depth cameras: `python benchmarks/robustness.py --policies perceived_expert --scenes 5`.

Every policy acts in the same scenes of the protocol, seen by each kind of depth camera. Evaluations
are stored, and an interrupted measurement continues.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console import print_now, table_head, table_row
from task_selection import TaskSelection

from fleet_tools.config.cameras import SENSORS, SensorName
from fleet_tools.config.values import Count
from fleet_tools.parallel.workers import WorkerOptions
from fleet_tools.utils import cli

# Results and Drake are imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.evaluation.result import Evaluation


class RobustnessOptions(cli.Options):
    """Measures success rates of policies that see by cameras, by kind of depth camera.

    Prints a row for each policy and task: the success rate with each kind of camera, with its 95%
    Wilson interval, and the scenes that failed, by split, seed and outcome.

    Exit codes:
    0: everything is measured.
    2: it cannot begin.
    130: Ctrl-C.
    """

    tasks: TaskSelection = TaskSelection()
    policies: tuple[str, ...] = ("perceived_expert",)
    """Names of policies, or paths of checkpoints, which act in the selected tasks."""
    sensors: tuple[SensorName, ...] = SENSORS
    """Kinds of depth cameras."""
    scenes: Count | None = None
    """Number of first scenes of each split of the protocol (default: all)."""
    output: Path = Path("results/robustness")
    """Folder of the evaluations."""
    workers: WorkerOptions = WorkerOptions()


def _measure_all(options: RobustnessOptions) -> int:
    columns = ["policy", "task", *options.sensors, "failures"]
    print_now(options, table_head(columns))
    rows = []
    for policy in options.policies:
        for task in options.tasks.names_or_paths():
            evaluations = [_evaluate(options, policy, task, name) for name in options.sensors]
            rows.append(_row(evaluations))
            print_now(options, _as_text(rows[-1]))
    if options.json_output:
        options.report({"rows": rows}, str)
    return cli.OK


def _evaluate(
    options: RobustnessOptions, policy: str, task: str, sensors: SensorName
) -> "Evaluation":
    from fleet_tools.evaluation.config import EvaluationConfig
    from fleet_tools.evaluation.run import evaluate_policy

    config = EvaluationConfig(policy=policy, task=task, scenes=options.scenes, sensors=sensors)
    folder = options.output.joinpath(
        *(part.strip("/").replace("/", "_") for part in (policy, task))
    )
    return evaluate_policy(config, folder / sensors, options.workers)


def _row(evaluations: Sequence["Evaluation"]) -> dict[str, Any]:
    """Returns the figures of a policy in a task, from its evaluations by each kind of camera."""
    task = evaluations[0].episodes[0].task
    rates, failures = {}, {}
    for evaluation in evaluations:
        policy, scores = evaluation.result.policy, evaluation.result.scores
        assert scores is not None  # the evaluation has ended
        rates[policy.sensors] = scores.tasks[task].success.model_dump()
        failures[policy.sensors] = [
            {
                "split": episode.split,
                "index": episode.index,
                "seed": episode.seed,
                "models": f"{episode.tool} on {episode.object}",
                "outcome": episode.outcome,
                "error": episode.error,
                "info": episode.info,
            }
            for episode in evaluation.episodes
            if not episode.success
        ]
    name = evaluations[0].result.policy.name
    return {"policy": name, "task": task, "rates": rates, "failures": failures}


def _as_text(row: dict[str, Any]) -> str:
    rates = [
        f"{rate['successes']} of {rate['trials']} ({rate['low']:.0%} to {rate['high']:.0%})"
        for rate in row["rates"].values()
    ]
    return table_row([row["policy"], row["task"], *rates, _failures(row)])


def _failures(row: dict[str, Any]) -> str:
    """Returns the failed scenes by kind of camera, such as "ideal: train 3 (time_limit)"."""
    return "; ".join(
        f"{name}: " + ", ".join(f"{e['split']} {e['index']} ({e['outcome']})" for e in failed)
        for name, failed in row["failures"].items()
        if failed
    )


PROGRAM = cli.Program(
    "robustness.py", cli.Command(RobustnessOptions, _measure_all), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
