"""Bodies of networks, which turn features into units: the base class, MLPs, recurrent networks."""

import abc
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fleet_merging.symmetry import layers
from fleet_merging.symmetry.layers import Table
from fleet_tools.baselines.policies.part_configs import MLPConfig, RecurrentConfig

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
    def symmetry(self, module: str, inputs: str) -> tuple[Table, str]:
        """Returns the table of the body's axes, and the axis of its units.

        Args:
            module: Name of the body in the network.
            inputs: Axis of the features.
        """

    def unitwise(self, module: str) -> list[str]:
        """Returns the names of parameters that are a number for each unit, which acts on it alone.

        Args:
            module: Name of the body in the network.
        """
        return []


class MLPBody(Body):
    """A multilayer perceptron; its hidden state is empty.

    If it is conditioned on the task, a linear map of the task's features scales and shifts the
    units of each layer before the ReLU (Perez et al. 2018, eq. 3). At first it changes nothing.

    Args:
        config: Its configuration.
        inputs: Number of features that it reads.
        task: Number of further features that say which task it is; 0 without conditioning.
    """

    def __init__(self, config: MLPConfig, inputs: int, task: int = 0) -> None:
        super().__init__()
        self._inputs = inputs
        sizes = [inputs] + [config.width] * config.layers
        self.width = sizes[-1]
        self.layers = nn.ModuleList(map(nn.Linear, sizes, sizes[1:]))
        self.film = nn.ModuleList(
            nn.Linear(task, 2 * config.width, bias=False) for _ in self.layers if task > 0
        )
        for modulation in self.film.parameters():
            nn.init.zeros_(modulation)

    def forward(
        self, features: torch.Tensor, hidden: Hidden | None = None
    ) -> tuple[torch.Tensor, Hidden]:
        """Computes the units of each step by itself; see `Body.forward`."""
        units, task = features[..., : self._inputs], features[..., self._inputs :]
        for i, layer in enumerate(self.layers):
            units = layer(units)
            if len(self.film) > 0:
                scale, shift = self.film[i](task).chunk(2, -1)
                units = (1 + scale) * units + shift
            units = torch.relu(units)
        return units, ()

    def symmetry(self, module: str, inputs: str) -> tuple[Table, str]:
        """Returns the table of its axes, and the axis of its units; see `Body.symmetry`."""
        units = [f"h{i}" for i in range(len(self.layers))]
        names = [f"{module}.layers.{i}" for i in range(len(units))]
        axes = [inputs, *units]
        table = layers.mlp(names, axes)
        for i in range(len(self.film)):
            table |= layers.linear(f"{module}.film.{i}", "_task", f"_film:2 {units[i]}", bias=False)
        return table, axes[-1]


_CELLS: dict[str, tuple[Callable[..., nn.RNNBase], Callable[..., Table]]] = {
    "elman": (nn.RNN, layers.elman),
    "lstm": (nn.LSTM, layers.lstm),
    "gru": (nn.GRU, layers.gru),
}


class RecurrentBody(Body):
    """A stack of recurrent layers.

    Its hidden state is as in PyTorch's module: tensors (layers, B, width), two for an LSTM.

    Args:
        config: Its configuration.
        inputs: Number of features that it reads.
    """

    def __init__(self, config: RecurrentConfig, inputs: int) -> None:
        super().__init__()
        self.width = config.width
        cell, self._table = _CELLS[config.type]
        self.core = cell(inputs, config.width, config.layers, batch_first=True)

    def forward(
        self, features: torch.Tensor, hidden: Hidden | None = None
    ) -> tuple[torch.Tensor, Hidden]:
        """Computes the units of T steps; see `Body.forward`.

        Under autocast, PyTorch would ask for oneDNN's LSTM in the precision of the features, and
        cast them afterwards to one in which the processor may have none.
        """
        state: Any = hidden  # PyTorch takes a tensor, or a tuple of two
        if hidden is not None and len(hidden) == 1:
            (state,) = hidden
        device = features.device.type
        if isinstance(self.core, nn.LSTM) and torch.is_autocast_enabled(device):
            features = features.to(torch.get_autocast_dtype(device))
        units, state = self.core(features, state)
        return units, state if isinstance(state, tuple) else (state,)

    def symmetry(self, module: str, inputs: str) -> tuple[Table, str]:
        """Returns the table of its axes, and the axis of its units; see `Body.symmetry`."""
        units = [f"h{i}" for i in range(self.core.num_layers)]
        return self._table(f"{module}.core", inputs, units), units[-1]


def lacks_lstm_kernel(precision: torch.dtype) -> bool:
    """Returns whether oneDNN has no LSTM of a precision for this processor, by asking for one.

    PyTorch's own kernels then take its place, see `RecurrentBody.forward`.
    """
    with torch.random.fork_rng(devices=[]):
        layer = nn.LSTM(1, 1)
    try:
        with torch.no_grad(), torch.autocast("cpu", precision):
            layer(torch.zeros(1, 1, 1))
    except RuntimeError:
        return True
    return False
