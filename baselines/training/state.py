"""The state of training and the progress of a run, as values from which it can continue."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import pydantic
import torch

from fleet_tools.baselines.training.config import Criterion
from fleet_tools.baselines.training.rollouts import TaskSuccesses
from fleet_tools.config.values import Count, Value
from fleet_tools.errors import FleetToolsError


class TrainingError(FleetToolsError, RuntimeError):
    """A training run that cannot be begun or resumed."""


class DivergedError(FleetToolsError, RuntimeError):
    """A loss or weights that are not finite; earlier states are kept."""


Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, eq=False)
class TrainingState:
    """A state of training.

    It has no random generator: the seed and the number of the epoch determine all later draws.

    Attributes:
        weights: State dict of the network.
        average: Moving averages of its trained weights; empty without averaging, and before the
            first step.
        moments: Moments of Adam by the names of weight and moment, such as "head.bias/exp_avg";
            empty before the first step.
        epoch: Number of complete epochs.
        batch: Number of batches done in the next epoch.
        squares: Sum of the losses of its steps so far.
        steps: Number of its steps so far.
    """

    weights: Tensors
    moments: Tensors = field(default_factory=dict)
    average: Tensors = field(default_factory=dict)
    epoch: int = 0
    batch: int = 0
    squares: float = 0.0
    steps: int = 0

    @classmethod
    def initial(cls, weights: Tensors) -> Self:
        """Returns the state before the first step, with a copy of the weights."""
        return cls({name: tensor.detach().clone() for name, tensor in weights.items()})

    @property
    def policy_weights(self) -> Tensors:
        """The weights of the policy: the moving averages, where there are any."""
        return {**self.weights, **self.average}

    @property
    def loss(self) -> float:
        """Mean loss over the steps of the epoch so far; NaN before its first batch."""
        return self.squares / self.steps if self.steps else float("nan")


def moments_of(optimizer: torch.optim.Optimizer, names: list[str]) -> dict[str, torch.Tensor]:
    """Copies the moments of an optimizer.

    Args:
        optimizer: The optimizer.
        names: Names of its parameters, in its order.
    """
    states = optimizer.state_dict()["state"]
    return {
        f"{names[index]}/{moment}": tensor.detach().cpu().clone()
        for index, moments in states.items()
        for moment, tensor in moments.items()
    }


def set_moments(optimizer: torch.optim.Optimizer, names: list[str], moments: Tensors) -> None:
    """Sets the moments of an optimizer.

    Args:
        optimizer: The optimizer.
        names: Names of its parameters, in its order.
        moments: The moments, as `moments_of` returns them.
    """
    states: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in moments.items():
        parameter, _, moment = name.rpartition("/")
        states.setdefault(names.index(parameter), {})[moment] = tensor.clone()
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": states, "param_groups": groups})


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
        """Returns the progress after another epoch, which ends at the state."""
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
    """Returns the value to minimize; None if it was not measured."""
    loss, rollouts = metrics.validation_loss, metrics.rollouts
    if choose_by == "loss":
        return None if loss is None else (loss,)
    if rollouts is None:
        return None
    failures = sum(each["episodes"] - each["successes"] for each in rollouts.values())
    return failures, math.inf if loss is None else loss
