"""What `python -m fleet_tools.baselines.train` prints before, during and after a training run."""

from pathlib import Path
from typing import Any, Self

import torch

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.recurrent import lacks_lstm_kernel
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.baselines.training.demonstrations import Trajectories
from fleet_tools.baselines.training.rollouts import format_successes
from fleet_tools.baselines.training.run import TrainingRunSpec
from fleet_tools.baselines.training.state import TrainingProgress, best_epoch
from fleet_tools.utils.progress import progress_bar


def plan_text(
    spec: TrainingRunSpec, training: Trajectories, validation: Trajectories | None
) -> str:
    """Returns what will be trained, with the values of options that were not given.

    Args:
        spec: What the run depends on.
        training: Trajectories that it learns from.
        validation: Trajectories for validation, if there are any.
    """
    config, body = spec.training, spec.blueprint.config.body
    size = sum(weights.numel() for weights in spec.blueprint.create().parameters())
    sizes = ", ".join(f"{key} {value}" for key, value in body.model_dump(exclude={"type"}).items())
    held_out = 0 if validation is None else validation.steps
    return (
        f"Policy: {body.type} ({sizes}), {size} parameters; it reads "
        f"{', '.join(spec.blueprint.observation)}.\n"
        f"Data: {spec.episodes} episodes; {training.steps} steps for training, {held_out} for "
        "validation.\n"
        f"Training: {config.epochs} epochs, batches of {config.batch_size}, {config.schedule} "
        f"learning rate {config.learning_rate:g}, moving average {config.ema_decay:g}, seed "
        f"{config.seed}, {spec.device}."
        f"{precision_note(spec.blueprint, config, spec.device)}"
    )


def precision_note(blueprint: Blueprint, config: TrainingConfig, device: str) -> str:
    """Returns a line on kernels that are replaced in training, or an empty text."""
    lstm = blueprint.config.body.type == "lstm" and device == "cpu"
    if not (lstm and config.precision == "bfloat16" and lacks_lstm_kernel(torch.bfloat16)):
        return ""
    return (
        "\nPrecision: oneDNN has no LSTM in bfloat16 for this processor; PyTorch's own, slower "
        "one computes it. float32 is faster here."
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
        spec: What the run depends on.
        trajectories: Trajectories that it learns from.
        before: Progress before the command.
        progress: Progress after it.
    """
    metrics = progress.metrics
    best = best_epoch(metrics, spec.choose_by)
    # Without the epochs of earlier commands, of which the first of this one may be a part.
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
