"""Reports of a training run: its plan, a progress bar, a summary, and curves.

Curves go to TensorBoard, from the run's stored log. Each command writes them anew, so that a
resumed run has no point twice.
"""

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from fleet_tools.baselines.training.config import PURPOSE, CurveOptions
from fleet_tools.baselines.training.demonstrations import Trajectories
from fleet_tools.baselines.training.rollouts import TaskSuccesses, format_successes
from fleet_tools.baselines.training.run import TrainingRunSpec
from fleet_tools.baselines.training.state import EpochMetrics, TrainingProgress, best_epoch
from fleet_tools.utils.disk_errors import disk_errors
from fleet_tools.utils.libraries import require
from fleet_tools.utils.progress import progress_bar


def plan_text(
    spec: TrainingRunSpec, training: Trajectories, validation: Trajectories | None
) -> str:
    """Returns a description of the training run, with the defaults of options.

    Args:
        spec: The run's inputs.
        training: Training data.
        validation: Trajectories for validation, if there are any.
    """
    config, body = spec.training, spec.blueprint.config.body
    size = sum(weights.numel() for weights in spec.blueprint.create().parameters())
    sizes = ", ".join(f"{key} {value}" for key, value in body.model_dump(exclude={"type"}).items())
    held_out = 0 if validation is None else validation.steps
    what = "Policy" if spec.blueprint.reading is None else "Keypoint detector"
    return (
        f"{what}: {body.type} ({sizes}), {size} parameters; it reads "
        f"{', '.join(spec.blueprint.observation)}.\n"
        f"Data: {spec.episodes} episodes; {training.steps} steps for training, {held_out} for "
        "validation.\n"
        f"Training: {config.epochs} epochs, batches of {config.batch_size}, {config.schedule} "
        f"learning rate {config.learning_rate:g}, moving average {config.ema_decay:g}, seed "
        f"{config.seed}, {spec.device}."
    )


def summarize(
    output: Path,
    spec: TrainingRunSpec,
    trajectories: Trajectories,
    before: TrainingProgress,
    progress: TrainingProgress,
) -> dict[str, Any]:
    """Summarizes a training run after a command that began or resumed it, as plain JSON data.

    Args:
        output: Folder of the run.
        spec: The run's inputs.
        trajectories: Training data.
        before: Progress before the command.
        progress: Progress after it.
    """
    metrics = progress.metrics
    best = best_epoch(metrics, spec.choose_by)
    # Without the epochs of earlier commands; this one may have begun within such an epoch.
    now = metrics[len(before.metrics) + (before.state.batch > 0) :]
    seconds = sum(epoch.seconds for epoch in now)
    rate = len(now) / seconds if seconds else None
    batches = len(trajectories.order(spec.training.batch_size, None))
    rollouts = [epoch.rollouts for epoch in metrics if epoch.rollouts is not None]
    return {
        "output": str(output),
        "epochs": progress.state.epoch,
        "loss": metrics[-1].loss if metrics else None,
        "validation_loss": metrics[-1].validation_loss if metrics else None,
        "choose_by": spec.choose_by,
        "best_epoch": best.epoch if best else None,
        "best_validation_loss": best.validation_loss if best else None,
        "rollouts": rollouts[-1] if rollouts else None,
        "best_rollouts": best.rollouts if best else None,
        "samples": trajectories.steps,
        "samples_per_second": rate and round(rate * trajectories.steps, 1),
        "batches_per_second": rate and round(rate * batches, 2),
    }


def as_text(summary: dict[str, Any]) -> str:
    """Returns a summary as text for people."""
    lines = [f"{summary['output']}: {summary['epochs']} epochs over {summary['samples']} steps"]
    if summary["loss"] is not None:
        lines.append(f"  loss {summary['loss']:.3g}")
    if summary["best_epoch"] is not None:
        lines.append(f"  {_best(summary)}, after epoch {summary['best_epoch']}")
    for task, result in (summary["rollouts"] or {}).items():
        lines.append(f"  {task}: {result['successes']} of {result['episodes']} rollouts succeeded")
    if summary["samples_per_second"] is not None:
        lines.append(
            f"  {summary['samples_per_second']:.0f} steps per second, "
            f"{summary['batches_per_second']:.1f} batches per second"
        )
    return "\n".join(lines)


def _best(summary: dict[str, Any]) -> str:
    if summary["choose_by"] == "loss":
        last, lowest = summary["validation_loss"], summary["best_validation_loss"]
        return f"validation loss {last:.3g}; lowest {lowest:.3g}"
    return f"most successful rollouts {format_successes(summary['best_rollouts'])}"


class EpochBar:
    """Progress bar of epochs, with the present losses and learning rate, and the last rollouts."""

    def __init__(self, spec: TrainingRunSpec, progress: TrainingProgress, quiet: bool) -> None:
        epochs = spec.training.epochs
        self._bar = progress_bar(epochs, "epoch", initial=progress.state.epoch, quiet=quiet)
        self._rollouts = ""

    def refresh(self) -> None:
        """Brings the elapsed time up to date."""
        self._bar.update(0)

    def update(self, progress: TrainingProgress) -> None:
        """Advances by an epoch."""
        epoch = progress.metrics[-1]
        if epoch.rollouts:
            self._rollouts = f", {format_successes(epoch.rollouts)} succeeded"
        text = f"loss {epoch.loss:.3g}"
        if epoch.validation_loss is not None:
            text += f", validation {epoch.validation_loss:.3g}"
        text += f", rate {epoch.learning_rate:.2g}"
        self._bar.set_postfix_str(text + self._rollouts, refresh=False)
        self._bar.update(1)

    def __enter__(self) -> Self:
        """Returns the bar itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the bar."""
        self._bar.close()


FOLDER = "tensorboard"
"""In the folder of a run, TensorBoard's files."""

Point = tuple[int, Mapping[str, float]]
"""A step, such as the number of an epoch, and values by the name of their curve."""

WritePoint = Callable[[Point], None]


def open_curves(options: CurveOptions, folder: Path, past: Iterable[Point]) -> WritePoint:
    """Returns a function that adds a point to all curves.

    Args:
        options: Destinations of curves.
        folder: Folder of the run.
        past: Points of earlier commands.

    Raises:
        MissingLibraryError: A library is not installed.
        OSError: The disk is full or gone.
    """
    if not options.tensorboard:
        return lambda point: None
    write = _tensorboard(folder / FOLDER)
    for point in past:
        write(point)
    return write


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


def _tensorboard(folder: Path) -> WritePoint:
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
    return write
