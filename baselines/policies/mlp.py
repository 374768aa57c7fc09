"""A body without memory: an MLP.

Every body is a module with

    width                               how many units it gives
    forward(features, hidden=None)      (B, T, n) -> (B, T, width), and its hidden state
    symmetry(module, inputs, streams)   its table, by its module's name, and its outputs' axis

Its hidden state is a tuple of tensors, None before an episode's first step. To go through T steps
at once, or through one after another with the state handed on, is the same; no step reads a later
one, so trajectories of different lengths may be padded at their ends. `streams` says whether the
units of residual streams are free, too, where there is one.
"""

import torch
from torch import nn

from fleet_tools.baselines.merging.symmetry.layers import Table, mlp
from fleet_tools.baselines.policies.config import MLP

Hidden = tuple[torch.Tensor, ...]


class MLPBody(nn.Module):
    """See `MLP`. Its hidden state is empty."""

    def __init__(self, config: MLP, inputs: int) -> None:
        super().__init__()
        self.width = config.width
        sizes = [inputs] + [config.width] * (config.layers - 1)
        self.layers = nn.ModuleList(nn.Linear(size, config.width) for size in sizes)

    def forward(
        self, features: torch.Tensor, hidden: Hidden | None = None
    ) -> tuple[torch.Tensor, Hidden]:
        for layer in self.layers:
            features = torch.relu(layer(features))
        return features, ()

    def symmetry(self, module: str, inputs: str, streams: bool = True) -> tuple[Table, str]:
        units = [f"h{i}" for i in range(len(self.layers))]
        names = [f"{module}.layers.{i}" for i in range(len(units))]
        return mlp(names, [inputs, *units]), units[-1]
