"""Bodies with a recurrent state: Elman networks, LSTM and GRU."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fleet_tools.baselines.merging.symmetry import layers
from fleet_tools.baselines.merging.symmetry.layers import Table
from fleet_tools.baselines.policies.config import RecurrentConfig
from fleet_tools.baselines.policies.modules import Body, Hidden

_CELLS: dict[str, tuple[Callable[..., nn.RNNBase], Callable[..., Table]]] = {
    "elman": (nn.RNN, layers.elman),
    "lstm": (nn.LSTM, layers.lstm),
    "gru": (nn.GRU, layers.gru),
}


class RecurrentBody(Body):
    """A stack of recurrent layers.

    Its hidden state is that of PyTorch's module: tensors (layers, B, width), two for an LSTM.

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

    def symmetry(self, module: str, inputs: str, streams: bool = True) -> tuple[Table, str]:
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
