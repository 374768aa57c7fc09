"""A table of finished training runs: `python benchmarks/learners.py RUN [RUN ...]`."""

import sys
from pathlib import Path
from typing import Annotated, Any

from scaffold import main_of, report_rows
from tyro.conf import Positional, arg

from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.training.record import TRAINING_RUN, load_progress
from fleet_tools.baselines.training.run import TrainingRunSpec
from fleet_tools.baselines.training.state import TrainingError
from fleet_tools.utils import cli


class LearnersOptions(cli.Options):
    """Prints a row for each training run: its policy, its data, and its last success rates.

    Rollouts are by `train --rollouts`, with the last weights, in validation scenes.
    """

    runs: Annotated[tuple[Path, ...], Positional, arg(metavar="RUN")]
    """Folders of training runs."""


def _table(options: LearnersOptions) -> int:
    rows = [_row(folder) for folder in options.runs]
    tasks = sorted({task for row in rows for task in row["solved"]})

    def cells(row: dict[str, Any]) -> list[str]:
        *facts, loss, solved = row.values()
        shown = [solved.get(task) for task in tasks]
        counts = ("" if each is None else f"{each[0]} of {each[1]}" for each in shown)
        return [*map(str, facts), "" if loss is None else f"{loss:.4f}", *counts]

    columns = ["run", "policy", "training", "episodes", "validation loss", *tasks]
    report_rows(options, columns, rows, cells)
    return cli.OK


def _row(folder: Path) -> dict[str, Any]:
    """Returns the facts of a run."""
    spec = TRAINING_RUN.read_document(folder)
    metrics = load_progress(folder).metrics
    rollouts = [each.rollouts for each in metrics if each.rollouts]
    if not rollouts:
        raise TrainingError(f"{folder} has no rollouts; train with --rollouts 20.")
    return {
        "run": folder.name,
        "policy": _policy(spec.blueprint.config),
        "training": _training(spec),
        "episodes": spec.episodes,
        "validation_loss": metrics[-1].validation_loss,
        "solved": {
            task: [found["successes"], found["episodes"]] for task, found in rollouts[-1].items()
        },
    }


def _policy(config: PolicyConfig) -> str:
    """Returns the policy's parts in words."""
    body, head = config.body, config.head
    encoders = {"PointNet": config.clouds, "ResNet": config.images}
    words = [name for name, encoder in encoders.items() if encoder is not None]
    layers, width = getattr(body, "layers", "?"), getattr(body, "width", "?")  # of one's own class
    words.append(f"{body.type} {layers} x {width}")
    conditioning = getattr(body, "task_conditioning", "input")
    words += [] if conditioning == "input" else [conditioning]
    words.append(f"{head.loss} loss" if head.type == "linear" else head.type)
    if config.chunk > 1:
        words.append(f"chunks of {config.chunk}, {config.execution.type}")
    return ", ".join(words)


def _training(spec: TrainingRunSpec) -> str:
    """Returns how it learned in words."""
    training = spec.training
    average = f", EMA {training.ema_decay:g}" if training.ema_decay else ""
    return f"{training.epochs} epochs of batches of {training.batch_size}{average}"


main = main_of(__file__, LearnersOptions, _table)

if __name__ == "__main__":
    sys.exit(main())
