"""Curves of a run for TensorBoard and Weights & Biases; all of them follow from its stored log.

Those of TensorBoard are written anew by each command, so that a resumed run has no point twice.
"""

import os
import secrets
import socket
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fleet_tools.baselines.training.config import PURPOSE, CurveOptions
from fleet_tools.baselines.training.rollouts import TaskSuccesses
from fleet_tools.baselines.training.state import EpochMetrics
from fleet_tools.storage.atomic_files import write_file
from fleet_tools.utils.disk_errors import disk_errors
from fleet_tools.utils.libraries import require

FOLDER, WANDB_ID = "tensorboard", "wandb_id.txt"
"""In the folder of a run, TensorBoard's files, and its id at Weights & Biases."""

Point = tuple[int, Mapping[str, float]]
"""A step, such as the number of an epoch, and values by the name of their curve."""

WritePoint = Callable[[Point], None]


@contextmanager
def open_curves(
    options: CurveOptions, folder: Path, config: Mapping[str, Any], past: Iterable[Point]
) -> Generator[WritePoint]:
    """Returns a function that adds a point to all curves.

    Args:
        options: Where curves are written.
        folder: Folder of the run.
        config: What the run depends on, as plain JSON data.
        past: Points of earlier commands.

    Raises:
        MissingLibraryError: A library is not installed.
        OSError: The disk is full or gone.
    """
    with ExitStack() as stack:
        writers: list[WritePoint] = []
        if options.tensorboard:
            writers.append(stack.enter_context(_tensorboard(folder / FOLDER)))
        if options.wandb is not None:
            writers.append(stack.enter_context(_wandb(options.wandb, folder, config)))

        def write(point: Point) -> None:
            for writer in writers:
                writer(point)

        if writers:
            for point in past:
                write(point)
        yield write


def epoch_point(metrics: EpochMetrics) -> Point:
    """Returns the point of an epoch of training."""
    values = {"loss/training": metrics.loss, "learning_rate": metrics.learning_rate}
    if metrics.validation_loss is not None:
        values["loss/validation"] = metrics.validation_loss
    return metrics.epoch, values | success_values(metrics.rollouts)


def success_values(rollouts: Mapping[str, TaskSuccesses] | None) -> dict[str, float]:
    """Returns success rates by the name of their curve; none without rollouts."""
    return {
        f"success/{task}": result["successes"] / result["episodes"]
        for task, result in (rollouts or {}).items()
    }


@contextmanager
def _tensorboard(folder: Path) -> Generator[WritePoint]:
    require("tensorboard", PURPOSE)
    # PyTorch's writer appends in a thread, which dies with a traceback when the disk is full.
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    for former in folder.glob("events.out.tfevents.*"):
        former.unlink()
    path = folder / f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"

    messages: Any = event_pb2  # protobuf makes its classes when it is imported
    summaries: Any = summary_pb2

    def append(**content: Any) -> None:
        with disk_errors(path), path.open("ab") as file:
            event = messages.Event(wall_time=time.time(), **content)
            RecordWriter(file).write(event.SerializeToString())

    def write(point: Point) -> None:
        step, values = point
        entries = [
            summaries.Summary.Value(tag=name, simple_value=value) for name, value in values.items()
        ]
        append(step=step, summary=summaries.Summary(value=entries))

    folder.mkdir(parents=True, exist_ok=True)
    append(file_version="brain.Event:2")
    yield write


@contextmanager
def _wandb(project: str, folder: Path, config: Mapping[str, Any]) -> Generator[WritePoint]:
    wandb: Any = require("wandb", PURPOSE)
    run = wandb.init(
        project=project,
        name=folder.name,
        dir=str(folder),
        id=_run_id(folder / WANDB_ID),
        resume="allow",
        config=dict(config),
    )
    done = run.step  # the number of steps that are there

    def write(point: Point) -> None:
        step, values = point
        if step >= done:
            run.log(dict(values), step=step)

    try:
        yield write
    finally:
        run.finish()


def _run_id(path: Path) -> str:
    """Returns the id by which a resumed run continues its curves; a restarted one has another."""
    if not path.is_file():
        write_file(path, secrets.token_hex(8))
    return path.read_text()
