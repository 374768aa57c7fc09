"""Progress of a training run, as a value: its state, its best weights, and metrics."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import pydantic

from fleet_tools.baselines.training.config import Criterion
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
        best: Weights of the policy after the best epoch, see `best_epoch`; empty before there is
            one.
        metrics: Metrics of all epochs so far.
    """

    state: TrainingState
    best: Tensors = field(default_factory=dict)
    metrics: tuple[EpochMetrics, ...] = ()

    def after_epoch(self, metrics: EpochMetrics, choose_by: Criterion) -> Self:
        """Returns the progress after another epoch, at whose end the state is."""
        after = replace(self, metrics=(*self.metrics, metrics))
        is_best = best_epoch(after.metrics, choose_by) is metrics
        return replace(after, best=after.state.policy_weights) if is_best else after


def best_epoch(metrics: Sequence[EpochMetrics], choose_by: Criterion) -> EpochMetrics | None:
    """Returns the metrics of the best epoch, the first if there are several; None without any.

    Args:
        metrics: Metrics of all epochs.
        choose_by: Criterion; among equally many successes, the validation loss decides.
    """
    judged = [each for each in metrics if _cost(each, choose_by) is not None]
    return min(judged, key=lambda each: _cost(each, choose_by) or (), default=None)


def _cost(metrics: EpochMetrics, choose_by: Criterion) -> tuple[float, ...] | None:
    """Returns what is to be smallest; None if it was not measured."""
    loss, rollouts = metrics.validation_loss, metrics.rollouts
    if choose_by == "loss":
        return None if loss is None else (loss,)
    if rollouts is None:
        return None
    failures = sum(each["episodes"] - each["successes"] for each in rollouts.values())
    return failures, math.inf if loss is None else loss
