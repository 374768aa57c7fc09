"""Heads: modules that turn units into chunks of actions."""

import math

import torch
from torch import nn

from fleet_tools.baselines.merging.symmetry.layers import Table, linear, mlp
from fleet_tools.baselines.policies.head_config import DenoisingConfig

_FREQUENCIES = 8


class LinearHead(nn.Linear):
    """A linear layer."""

    def symmetry(self, module: str, units: str) -> Table:
        """Returns the table of its axes.

        Args:
            module: Name of the head in the network.
            units: Axis of the units.
        """
        return linear(module, units, "_action")


class DenoisingHead(nn.Module):
    """A network that leads from noise to actions, step by step, given units.

    Args:
        config: Its configuration.
        units: Number of units that it reads.
        numbers: Number of entries of a chunk of actions.
    """

    frequencies: torch.Tensor

    def __init__(self, config: DenoisingConfig, units: int, numbers: int) -> None:
        super().__init__()
        self._process, self._numbers = config.process(), numbers
        sizes = [units + numbers + 2 * _FREQUENCIES] + [config.width] * (config.layers - 1)
        self.layers = nn.ModuleList(nn.Linear(size, config.width) for size in sizes)
        self.output = nn.Linear(config.width, numbers)
        frequencies = torch.logspace(0, 1, _FREQUENCIES)  # half waves between times 0 and 1
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(
        self,
        units: torch.Tensor,
        noisy: torch.Tensor | None = None,
        time: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Computes chunks of actions, or the network's answer at one time; see `denoising`.

        Args:
            units: (..., width).
            noisy: Noise from which to begin, of deviation 1, (..., n); zeros if None.
            time: Times at which to answer, (..., 1); None for actions.

        Returns:
            (..., n).
        """
        if noisy is None:
            noisy = units.new_zeros((*units.shape[:-1], self._numbers))
        if time is not None:
            return self._answer(units, noisy, time)
        return self._process.sample(lambda *asked: self._answer(units, *asked), noisy)

    def _answer(self, units: torch.Tensor, noisy: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        angles = math.pi * time * self.frequencies
        hidden = torch.cat([units, noisy, angles.sin(), angles.cos()], -1)
        for layer in self.layers:
            hidden = nn.functional.silu(layer(hidden))
        return self.output(hidden)

    def symmetry(self, module: str, units: str) -> Table:
        """Returns the table of its axes; see `LinearHead.symmetry`."""
        hidden = [f"{module}.h{i}" for i in range(len(self.layers))]
        names = [*(f"{module}.layers.{i}" for i in range(len(hidden))), f"{module}.output"]
        inputs = f"{units} | _noisy:{self._numbers} | _time:{2 * _FREQUENCIES}"
        return mlp(names, [inputs, *hidden, "_action"])
