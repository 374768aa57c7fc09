"""A body of diagonal linear recurrences, whose memories do not read one another.

Each layer has states with a decay of their own, and units that read them:

    s_t = a s_(t-1) + sqrt(1 - a^2) (B x_t + b)        element by element, with 0 < a < 1
    h_t = relu(C s_t + c)

as in linear recurrent units (Orvieto et al. 2023, sections 3.2 to 3.4: stable by construction,
decays drawn from a ring, inputs normalized), with real instead of complex decays. So a state is a
unit like others, which may be reordered, averaged and chosen. All steps of a trajectory are
computed at once, by doubling (Hillis and Steele 1986), which is the same as one after the other.
"""

import torch
from torch import nn

from fleet_merging.symmetry import layers
from fleet_merging.symmetry.layers import Table
from fleet_tools.baselines.policies.bodies import Body, Hidden
from fleet_tools.baselines.policies.part_configs import DiagonalConfig

_LARGEST = 0.999
"""Largest decay that is drawn, for a memory of about a thousand steps."""


class DiagonalBody(Body):
    """Layers of diagonal linear recurrences.

    Its hidden state is one tensor, (layers, B, width).

    Args:
        config: Its configuration.
        inputs: Number of features that it reads.
    """

    def __init__(self, config: DiagonalConfig, inputs: int) -> None:
        super().__init__()
        self.width = config.width
        sizes = [inputs] + [config.width] * (config.layers - 1)
        self.inputs = nn.ModuleList(nn.Linear(size, config.width) for size in sizes)
        self.decays = nn.ParameterList(_drawn_rates(config.width) for _ in sizes)
        self.outputs = nn.ModuleList(nn.Linear(config.width, config.width) for _ in sizes)

    def forward(
        self, features: torch.Tensor, hidden: Hidden | None = None
    ) -> tuple[torch.Tensor, Hidden]:
        """Computes the units of T steps; see `Body.forward`."""
        units, last = features, []
        for i, (read, rate, write) in enumerate(
            zip(self.inputs, self.decays, self.outputs, strict=True)
        ):
            decay = torch.exp(-torch.exp(rate))
            driven = torch.sqrt(-torch.expm1(-2 * torch.exp(rate))) * read(units)
            states = decayed_sums(decay, driven, None if hidden is None else hidden[0][i])
            last.append(states[:, -1])
            units = torch.relu(write(states))
        return units, (torch.stack(last),)

    def symmetry(self, module: str, inputs: str) -> tuple[Table, str]:
        """Returns the table of its axes, and the axis of its units; see `Body.symmetry`."""
        table: Table = {}
        for i in range(len(self.inputs)):
            table |= layers.linear(f"{module}.inputs.{i}", inputs, f"s{i}")
            table[f"{module}.decays.{i}"] = f"s{i}"
            table |= layers.linear(f"{module}.outputs.{i}", f"s{i}", f"h{i}")
            inputs = f"h{i}"
        return table, inputs

    def unitwise(self, module: str) -> list[str]:
        """Returns the names of the decays; see `Body.unitwise`."""
        return [f"{module}.decays.{i}" for i in range(len(self.decays))]


def decayed_sums(
    decay: torch.Tensor, inputs: torch.Tensor, first: torch.Tensor | None = None
) -> torch.Tensor:
    """Returns s_t = decay s_(t-1) + inputs_t for all steps, in about log2(T) passes over them.

    Args:
        decay: (n,), from 0 to 1.
        inputs: (B, T, n).
        first: State before the first step, (B, n); None for zeros.

    Returns:
        (B, T, n).
    """
    states = inputs
    if first is not None:
        states = torch.cat([inputs[:, :1] + (decay * first)[:, None], inputs[:, 1:]], 1)
    span = 1
    while span < inputs.shape[1]:  # states are sums over the last `span` steps
        later = states[:, span:] + decay * states[:, :-span]
        states = torch.cat([states[:, :span], later], 1)
        decay, span = decay * decay, 2 * span
    return states


def _drawn_rates(width: int) -> nn.Parameter:
    """Returns log(-log(a)) of decays a, of which a^2 is uniform, as in a ring of the plane."""
    squares = torch.rand(width) * _LARGEST**2
    return nn.Parameter(torch.log(-0.5 * torch.log(squares.clamp(min=1e-6))))
