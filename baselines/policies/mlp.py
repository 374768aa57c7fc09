"""A body without memory: a multilayer perceptron."""

import torch
from torch import nn

from fleet_tools.baselines.merging.symmetry.layers import Table, mlp
from fleet_tools.baselines.policies.config import MLPConfig
from fleet_tools.baselines.policies.modules import Body, Hidden


class MLPBody(Body):
    """A multilayer perceptron; its hidden state is empty.

    Args:
        config: Its configuration.
        inputs: Number of features that it reads.
    """

    def __init__(self, config: MLPConfig, inputs: int) -> None:
        super().__init__()
        self.width = config.width
        sizes = [inputs] + [config.width] * (config.layers - 1)
        self.layers = nn.ModuleList(nn.Linear(size, config.width) for size in sizes)

    def forward(
        self, features: torch.Tensor, hidden: Hidden | None = None
    ) -> tuple[torch.Tensor, Hidden]:
        """Computes the units of each step by itself; see `Body.forward`."""
        for layer in self.layers:
            features = torch.relu(layer(features))
        return features, ()

    def symmetry(self, module: str, inputs: str, streams: bool = True) -> tuple[Table, str]:
        """Returns the table of its axes, and the axis of its units; see `Body.symmetry`."""
        units = [f"h{i}" for i in range(len(self.layers))]
        names = [f"{module}.layers.{i}" for i in range(len(units))]
        return mlp(names, [inputs, *units]), units[-1]
