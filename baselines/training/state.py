"""The state of training, as a value: nothing else is needed to continue."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import torch

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, eq=False)
class TrainingState:
    """A state of training.

    It has no random generator: what comes next is drawn from the seed and the number of the epoch.

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
    """Sets the moments of an optimizer to those that `moments_of` returned.

    Args:
        optimizer: The optimizer.
        names: Names of its parameters, in its order.
        moments: The moments.
    """
    states: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in moments.items():
        parameter, _, moment = name.rpartition("/")
        states.setdefault(names.index(parameter), {})[moment] = tensor.clone()
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": states, "param_groups": groups})
