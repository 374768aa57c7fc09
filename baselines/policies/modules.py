"""Base classes of the modules that a policy's network consists of: bodies and encoders."""

import abc

import torch
from torch import nn

from fleet_tools.baselines.merging.symmetry.layers import Table

Hidden = tuple[torch.Tensor, ...]
"""State of a body after a step; None stands for the beginning of an episode."""


class Body(nn.Module, abc.ABC):
    """Turns features into units, step by step.

    One pass over T steps is the same as several passes over its parts, each of which receives the
    hidden state of the one before. No step depends on a later one, so trajectories of different
    lengths may be padded at the end.

    Attributes:
        width: Number of units.
    """

    width: int

    @abc.abstractmethod
    def forward(
        self, features: torch.Tensor, hidden: Hidden | None = None
    ) -> tuple[torch.Tensor, Hidden]:
        """Computes the units of T steps of B trajectories.

        Args:
            features: (B, T, n).
            hidden: Hidden state after the steps before; None at the beginning of episodes.

        Returns:
            Units (B, T, width), and the hidden state after the last step.
        """

    @abc.abstractmethod
    def symmetry(self, module: str, inputs: str, streams: bool = True) -> tuple[Table, str]:
        """Returns the table of the body's axes, and the axis of its units.

        Args:
            module: Name of the body in the network.
            inputs: Axis of the features.
            streams: Whether the units of residual streams, if there are any, may be permuted.
        """


class Encoder(nn.Module, abc.ABC):
    """Turns an entry of the observation into features.

    Attributes:
        width: Number of features.
    """

    width: int

    @abc.abstractmethod
    def forward(self, rows: torch.Tensor, /) -> torch.Tensor:
        """Encodes rows, (..., *shape) -> (..., width)."""

    @abc.abstractmethod
    def symmetry(self, module: str, streams: bool = True) -> tuple[Table, str]:
        """Returns the table of the encoder's axes, and the axis of its features.

        Args:
            module: Name of the encoder in the network.
            streams: Whether the units of residual streams, if there are any, may be permuted.
        """
