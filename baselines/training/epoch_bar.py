"""The progress bar of a training run."""

from typing import Self

from fleet_tools.baselines.training.progress import TrainingProgress
from fleet_tools.baselines.training.rollouts import format_successes
from fleet_tools.baselines.training.run_spec import TrainingRunSpec
from fleet_tools.utils.progress import progress_bar


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
