"""A table of finished trainings: `python benchmarks/learners.py RUN [RUN ...]`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from scaffold import main_of, table_head, table_row
from tyro.conf import Positional, arg

from fleet_tools.utils import cli

# PyTorch is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.baselines.policies.config import PolicyConfig
    from fleet_tools.baselines.training.run import TrainingRunSpec


class LearnersOptions(cli.Options):
    """Prints a row for each training run: its policy, its data, and what its last rollouts solved.

    Rollouts are those of `train --rollouts`, by the last weights, in validation scenes.

    Exit codes:
    0: all runs are in the table.
    2: it cannot begin.
    """

    runs: Annotated[tuple[Path, ...], Positional, arg(metavar="RUN")]
    """Folders of training runs."""


def _table(options: LearnersOptions) -> int:
    rows = [_row(folder) for folder in options.runs]
    options.report({"runs": rows}, lambda: _as_text(rows))
    return cli.OK


def _row(folder: Path) -> dict[str, Any]:
    """Returns the facts of a run."""
    from fleet_tools.baselines.training.record import load_progress
    from fleet_tools.baselines.training.run import TrainingRunSpec
    from fleet_tools.baselines.training.state import TrainingError
    from fleet_tools.storage.run_folder import read_spec

    spec = read_spec(folder, TrainingRunSpec, TrainingError)
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


def _policy(config: "PolicyConfig") -> str:
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


def _training(spec: "TrainingRunSpec") -> str:
    """Returns how it learned in words."""
    training = spec.training
    average = f", EMA {training.ema_decay:g}" if training.ema_decay else ""
    return f"{training.epochs} epochs of batches of {training.batch_size}{average}"


def _as_text(rows: Sequence[dict[str, Any]]) -> str:
    tasks = sorted({task for row in rows for task in row["solved"]})
    columns = ["run", "policy", "training", "episodes", "validation loss", *tasks]
    lines = [table_head(columns)]
    for row in rows:
        solved = [row["solved"].get(task) for task in tasks]
        loss = row["validation_loss"]
        cells = [
            row["run"],
            row["policy"],
            row["training"],
            str(row["episodes"]),
            "" if loss is None else f"{loss:.4f}",
            *("" if each is None else f"{each[0]} of {each[1]}" for each in solved),
        ]
        lines.append(table_row(cells))
    return "\n".join(lines)


main = main_of(__file__, LearnersOptions, _table)

if __name__ == "__main__":
    sys.exit(main())
