"""A body and an encoder as a user of the package writes them, named as module:class."""

import torch
from torch import nn


class GatedBody(nn.Module):
    """Two layers, of which one gates the other, and a decaying memory of their units."""

    def __init__(self, inputs: int, width: int = 6, decay: float = 0.5) -> None:
        super().__init__()
        self.width, self.decay = width, decay
        self.values, self.gates = nn.Linear(inputs, width), nn.Linear(inputs, width)
        self.mixing = nn.Linear(width, width)

    def forward(
        self, features: torch.Tensor, hidden: tuple[torch.Tensor, ...] | None = None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        units = torch.tanh(self.values(features)) * torch.sigmoid(self.gates(features))
        state = torch.zeros_like(units[:, 0]) if hidden is None else hidden[0]
        steps = []
        for step in units.unbind(1):
            state = self.decay * state + step
            steps.append(state)
        return nn.functional.silu(self.mixing(torch.stack(steps, 1))), (state,)


class MeanOfPoints(nn.Module):
    """An encoder of clouds by the mean over points instead of the maximum."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.inner, self.outer = nn.Linear(4, 9), nn.Linear(9, width)

    def forward(self, cloud: torch.Tensor, /) -> torch.Tensor:
        return self.outer(torch.relu(self.inner(cloud)).mean(-2))


class WithoutWidth(nn.Linear):
    """No body, for it does not say how many units it has."""

    def __init__(self, inputs: int) -> None:
        super().__init__(inputs, 3)


def never_called(*_: object, **__: object) -> nn.Module:
    """A function that a stranger's checkpoint could name, of a module that is trusted."""
    raise AssertionError("it was called")
