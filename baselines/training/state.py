"""How far training is, as a value: nothing else is needed to go on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import torch

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, eq=False)
class TrainingState:
    """Where training is; what comes next is drawn from the seed and the epoch, so no generator's
    state is part of it.

    Attributes:
        weights: The network's state dict.
        moments: Adam's, by the weight's name and the moment's: "head.bias/exp_avg". None at first.
        epoch: How many epochs are complete.
        batch: How many batches of the next one are done.
        squares, steps: Sum of the squared errors of its steps so far, and their number.
    """

    weights: Tensors
    moments: Tensors = field(default_factory=dict)
    epoch: int = 0
    batch: int = 0
    squares: float = 0.0
    steps: int = 0

    @classmethod
    def initial(cls, weights: Tensors) -> Self:
        """Returns the state before the first step from some weights, which stay as they are."""
        return cls({name: tensor.detach().clone() for name, tensor in weights.items()})

    @property
    def loss(self) -> float:
        """The mean loss over the steps of the epoch so far; NaN before its first batch."""
        return self.squares / self.steps if self.steps else float("nan")


def moments_of(optimizer: torch.optim.Optimizer, names: list[str]) -> dict[str, torch.Tensor]:
    """Copies an optimizer's moments.

    Args:
        optimizer: Of the parameters with these names, in this order.
        names: Of parameters.
    """
    states = optimizer.state_dict()["state"]
    return {
        f"{names[place]}/{moment}": tensor.detach().cpu().clone()
        for place, moments in states.items()
        for moment, tensor in moments.items()
    }


def give_moments(optimizer: torch.optim.Optimizer, names: list[str], moments: Tensors) -> None:
    """Gives an optimizer what `moments_of` copied."""
    states: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in moments.items():
        parameter, _, moment = name.rpartition("/")
        states.setdefault(names.index(parameter), {})[moment] = tensor.clone()
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": states, "param_groups": groups})
