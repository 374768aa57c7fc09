"""Bodies with a recurrent state: Elman networks, LSTM and GRU."""

import torch
from torch import nn

from fleet_tools.baselines.merging.symmetry import layers
from fleet_tools.baselines.merging.symmetry.layers import Table
from fleet_tools.baselines.policies.config import Recurrent
from fleet_tools.baselines.policies.mlp import Hidden

_CELLS = {
    "elman": (nn.RNN, layers.elman),
    "lstm": (nn.LSTM, layers.lstm),
    "gru": (nn.GRU, layers.gru),
}


class RecurrentBody(nn.Module):
    """See `Recurrent`, and `mlp` for what a body is.

    Its hidden state is what PyTorch calls so: tensors (layers, B, width), two for an LSTM.
    """

    def __init__(self, config: Recurrent, inputs: int) -> None:
        super().__init__()
        self.width = config.width
        cell, self._table = _CELLS[config.type]
        self.core = cell(inputs, config.width, config.layers, batch_first=True)

    def forward(
        self, features: torch.Tensor, hidden: Hidden | None = None
    ) -> tuple[torch.Tensor, Hidden]:
        if hidden is not None and len(hidden) == 1:
            (hidden,) = hidden
        units, hidden = self.core(features, hidden)
        return units, hidden if isinstance(hidden, tuple) else (hidden,)

    def symmetry(self, module: str, inputs: str, streams: bool = True) -> tuple[Table, str]:
        units = [f"h{i}" for i in range(self.core.num_layers)]
        return self._table(f"{module}.core", inputs, units), units[-1]
