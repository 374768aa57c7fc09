"""A body without memory: a multilayer perceptron."""

import torch
from torch import nn

from fleet_tools.baselines.merging.symmetry.layers import Table, linear, mlp
from fleet_tools.baselines.policies.config import MLPConfig
from fleet_tools.baselines.policies.modules import Body, Hidden


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

    def symmetry(self, module: str, inputs: str, streams: bool = True) -> tuple[Table, str]:
        """Returns the table of its axes, and the axis of its units; see `Body.symmetry`."""
        units = [f"h{i}" for i in range(len(self.layers))]
        names = [f"{module}.layers.{i}" for i in range(len(units))]
        axes = [inputs, *units]
        table = mlp(names, axes)
        for i in range(len(self.film)):
            table |= linear(f"{module}.film.{i}", "_task", f"_film:2 {units[i]}", bias=False)
        return table, axes[-1]
