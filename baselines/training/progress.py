"""Progress of a training run, as a value: its state, its best weights, and metrics."""

from dataclasses import dataclass, field, replace
from typing import Self

import pydantic

from fleet_tools.baselines.training.rollouts import TaskSuccesses
from fleet_tools.baselines.training.state import Tensors, TrainingState
from fleet_tools.config.values import Count, Value


class EpochMetrics(Value):
    """Metrics of an epoch, a line of `metrics.jsonl`.

    Attributes:
        epoch: Number of the epoch, from 1.
        loss: Mean loss over the steps of its batches.
        validation_loss: Loss of its last weights on the validation episodes; None without any.
        learning_rate: Learning rate at its end.
        rollouts: Successes of its last weights in rollouts, by task; None if there were none.
        seconds: Wall time of its training, since it was last resumed.
    """

    model_config = pydantic.ConfigDict(allow_inf_nan=True)  # losses just before a divergence

    epoch: Count
    loss: float
    validation_loss: float | None
    learning_rate: float
    rollouts: dict[str, TaskSuccesses] | None
    seconds: float


@dataclass(frozen=True, eq=False)
class TrainingProgress:
    """Progress of a training run.

    Attributes:
        state: State of training.
        best: Weights after the epoch with the lowest validation loss; empty before there is one.
        metrics: Metrics of all epochs so far.
    """

    state: TrainingState
    best: Tensors = field(default_factory=dict)
    metrics: tuple[EpochMetrics, ...] = ()

    @property
    def best_epoch(self) -> EpochMetrics | None:
        """Metrics of the epoch with the lowest validation loss, the first if there are several."""
        validated = [
            (each.validation_loss, each)
            for each in self.metrics
            if each.validation_loss is not None
        ]
        return min(validated, key=lambda pair: pair[0], default=(None, None))[1]

    def after_epoch(self, metrics: EpochMetrics) -> Self:
        """Returns the progress after another epoch, at whose end the state is."""
        after = replace(self, metrics=(*self.metrics, metrics))
        is_best = after.best_epoch is metrics
        return replace(after, best=after.state.weights) if is_best else after
