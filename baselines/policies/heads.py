"""Heads, which turn units into chunks of actions, and the processes of heads that denoise.

A process between noise and actions has two functions. One gives the queries and targets of its
network in training, the other the path from noise to actions by the network's answers. A given
generator draws the random numbers, so that training and sampling can be repeated.

Every head ends with a linear map, and learns a regression of this map's outputs, see `Regression`.
So a merge fits the last map of every kind of head by moments of its inputs and targets.
`side_by_side` makes several heads act together.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import nn

from fleet_merging.symmetry.layers import Table, linear, mlp
from fleet_tools.baselines.policies.part_configs import (
    DenoisingConfig,
    FlowHeadConfig,
    HeadConfig,
    LinearHeadConfig,
)

_FREQUENCIES = 8


class LinearHead(nn.Linear):
    """A linear layer; see `DenoisingHead`."""

    def __init__(self, config: LinearHeadConfig, units: int, numbers: int) -> None:
        super().__init__(units, numbers)

    def outputs(self, answer: "Answer", units: torch.Tensor) -> torch.Tensor:
        """Returns the answer; see `DenoisingHead.outputs`."""
        return answer()

    def symmetry(self, module: str, units: str) -> Table:
        """Returns the table of its axes.

        Args:
            module: Name of the head in the network.
            units: Axis of the units.
        """
        return linear(module, units, "_action")


class DenoisingHead(nn.Module):
    """A network that leads from noise to actions step by step, given units.

    Args:
        config: Its configuration.
        units: Number of units that it reads.
        numbers: Number of entries of a chunk of actions.
    """

    frequencies: torch.Tensor

    def __init__(self, config: DenoisingConfig, units: int, numbers: int) -> None:
        super().__init__()
        self._process, self._numbers = process_of(config), numbers
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
        """Computes chunks of actions, or the network's answer at one time; see `outputs`."""
        return self.outputs(partial(self._answer, units), units, noisy, time)

    def outputs(
        self,
        answer: "Answer",
        units: torch.Tensor,
        noisy: torch.Tensor | None = None,
        time: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Returns the chunks of actions at the end of the path, or the answers at one time.

        Args:
            answer: The answers of this head, or of several together.
            units: (..., width).
            noisy: Initial noise of deviation 1, (..., n); zeros if None. With times, it may have
                several rows for each row of units, (..., draws, n).
            time: Times at which to answer, (..., 1) or (..., draws, 1); None for actions.

        Returns:
            (..., n) or (..., draws, n).
        """
        if noisy is None:
            noisy = units.new_zeros((*units.shape[:-1], self._numbers))
        return self._process.sample(answer, noisy) if time is None else answer(noisy, time)

    def _answer(self, units: torch.Tensor, noisy: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        if noisy.dim() > units.dim():
            units = units.unsqueeze(-2).expand(*noisy.shape[:-1], -1)
        hidden = torch.cat([units, self.asked(noisy, time)], -1)
        for layer in self.layers:
            hidden = nn.functional.silu(layer(hidden))
        return self.output(hidden)

    def asked(self, noisy: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Returns the inputs of the first layer besides units, (..., n + 16)."""
        angles = math.pi * time * self.frequencies
        return torch.cat([noisy, angles.sin(), angles.cos()], -1)

    def symmetry(self, module: str, units: str) -> Table:
        """Returns the table of its axes; see `LinearHead.symmetry`."""
        hidden = [f"{module}.h{i}" for i in range(len(self.layers))]
        names = [*(f"{module}.layers.{i}" for i in range(len(hidden))), f"{module}.output"]
        inputs = f"{units} | _noisy:{self._numbers} | _time:{2 * _FREQUENCIES}"
        return mlp(names, [inputs, *hidden, "_action"])


Answer = Callable[..., torch.Tensor]
"""answer(noisy, time): the network's outputs for noisy actions (..., n) at times (..., 1); answer()
of a linear head."""


def side_by_side(
    heads: Sequence[LinearHead | DenoisingHead], units: Sequence[torch.Tensor]
) -> Answer:
    """Returns the answers of several heads of one kind, (..., n, heads), each from its own units.

    Heads act together by a weighted sum of these answers at each step from a common noise. This
    equals one head with one last matrix. Its hidden layers are theirs side by side: each reads its
    own body's units, and all read the noisy actions and the time. The last matrix reads the last
    hidden units of all. A fit of it minimizes the training loss of each head.

    Args:
        heads: The heads.
        units: Units of the body of each head, (..., width).
    """
    if isinstance(heads[0], LinearHead):
        answers = [head(read) for head, read in zip(heads, units, strict=True)]
        return lambda: torch.stack(answers, -1)
    denoising = [cast(DenoisingHead, head) for head in heads]
    layers = list(zip(*([*head.layers, head.output] for head in denoising), strict=True))
    biases = [torch.stack([layer.bias for layer in each]) for each in layers]  # (heads, out)
    firsts, width = [layer.weight for layer in layers[0]], units[0].shape[-1]
    weights = [torch.stack([weight[:, width:] for weight in firsts])]  # (heads, out, in)
    weights += [torch.stack([layer.weight for layer in each]) for each in layers[1:]]
    # The part of the first layer without noise and time is computed once: (..., heads, out).
    pairs = zip(units, firsts, strict=True)
    begin = torch.stack([read @ weight[:, :width].T for read, weight in pairs], -2) + biases[0]

    def answer(noisy: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        asked = denoising[0].asked(noisy, time)
        of_units = begin.unsqueeze(-3) if noisy.dim() > units[0].dim() else begin
        hidden = of_units + torch.einsum("...i,hoi->...ho", asked, weights[0])
        for weight, bias in zip(weights[1:], biases[1:], strict=True):
            hidden = torch.einsum("...hi,hoi->...ho", nn.functional.silu(hidden), weight) + bias
        return hidden.transpose(-1, -2)

    return answer


class Regression(NamedTuple):
    """Queries of a head, and the targets of its last linear map.

    Attributes:
        inputs: Its inputs besides units: nothing, or noisy actions (..., n) and times (..., 1).
        target: (..., n).
        absolute: Whether its loss is the absolute error, instead of the squared one.
    """

    inputs: tuple[torch.Tensor, ...]
    target: torch.Tensor
    absolute: bool = False

    def losses(self, answers: torch.Tensor) -> torch.Tensor:
        """Returns the losses of answers, (..., n)."""
        errors = answers - self.target
        return errors.abs() if self.absolute else errors.square()


def regression(
    head: HeadConfig, actions: torch.Tensor, generator: np.random.Generator
) -> Regression:
    """Returns the training targets of a head for demonstrated actions.

    Args:
        head: Configuration of the head.
        actions: Chunks of actions, (..., n).
        generator: Draws times and noise, on the CPU, so that they are the same on every device.
    """
    if isinstance(head, LinearHeadConfig):
        return Regression((), actions, head.loss == "absolute")
    return process_of(head).regression(actions, generator)


def largest_target(head: HeadConfig, action: float) -> float:
    """Returns a bound of the root mean square of a head's targets, over 32 draws or more.

    Args:
        head: Configuration of the head.
        action: Largest magnitude of an action.
    """
    if isinstance(head, LinearHeadConfig):
        return action
    noise = 2.0  # of deviation 1; p < 1e-12
    return noise + (action / head.unit if isinstance(head, FlowHeadConfig) else 0.0)


def first_noise(
    head: HeadConfig, shape: tuple[int, ...], generator: np.random.Generator
) -> tuple[torch.Tensor, ...]:
    """Returns a head's initial inputs: noise of a shape (..., n) in float32, or nothing."""
    if isinstance(head, LinearHeadConfig):
        return ()
    return (torch.from_numpy(generator.standard_normal(shape, np.float32)),)


@dataclass(frozen=True)
class Flow:
    """Straight paths x_t = (1 - t) z + t a from noise z to actions a (Liu et al. 2023, eq. 1).

    The network answers with the velocity. The mean of a - z given x_t is a flow from the
    distribution of z to the actions' (Lipman et al. 2023, theorem 2).

    Attributes:
        unit: Number of an action that counts as 1 on these paths; z is a standard normal.
        steps: Number of Euler steps.
    """

    unit: float
    steps: int

    def regression(self, actions: torch.Tensor, generator: np.random.Generator) -> Regression:
        """Draws times, uniformly, and noise; see the function `regression`."""
        time = _to(actions, generator.random((*actions.shape[:-1], 1)))
        z = _to(actions, generator.standard_normal(actions.shape))
        a = actions / self.unit
        return Regression((torch.lerp(z, a, time), time), a - z)

    def sample(self, answer: Answer, noisy: torch.Tensor) -> torch.Tensor:
        """Returns the actions at the end of the path from `noisy`, (..., n)."""
        for step in range(self.steps):
            noisy = noisy + answer(noisy, _time(noisy, step / self.steps)) / self.steps
        return self.unit * noisy


@dataclass(frozen=True)
class Diffusion:
    """Gaussian diffusion x = sqrt(b) a + sqrt(1 - b) z (Ho et al. 2020, eq. 4).

    The network answers with the noise z. b falls with the level by the cosine schedule of Nichol
    and Dhariwal 2021 (eq. 17). Time is the level's number divided by `levels`.

    Attributes:
        unit: Number of an action that counts as 1; z is a standard normal.
        levels: Number of levels.
        steps: Number of levels that sampling visits.
    """

    unit: float
    levels: int
    steps: int

    def regression(self, actions: torch.Tensor, generator: np.random.Generator) -> Regression:
        """Draws levels, uniformly, and noise; see the function `regression`."""
        level = generator.integers(1, self.levels + 1, (*actions.shape[:-1], 1))
        time = _to(actions, level / self.levels)
        z = _to(actions, generator.standard_normal(actions.shape))
        b = _kept(time)
        return Regression((b.sqrt() * actions / self.unit + (1 - b).sqrt() * z, time), z)

    def sample(self, answer: Answer, noisy: torch.Tensor) -> torch.Tensor:
        """Returns actions by DDIM without noise (Song et al. 2021, eq. 12), (..., n).

        Each step's prediction is clipped to [-1, 1], the range of actions.
        """
        visited = np.linspace(self.levels, 0, self.steps + 1).round() / self.levels
        for now, then in pairwise(visited.tolist()):
            time = _time(noisy, now)
            b, b_then = _kept(time), _kept(_time(noisy, then))
            a = (noisy - (1 - b).sqrt() * answer(noisy, time)) / b.sqrt()
            a = a.clamp(-1 / self.unit, 1 / self.unit)
            z = (noisy - b.sqrt() * a) / (1 - b).sqrt()
            noisy = b_then.sqrt() * a + (1 - b_then).sqrt() * z
        return self.unit * noisy


def _kept(time: torch.Tensor) -> torch.Tensor:
    """Returns b, the fraction of the actions' variance that remains; 1 at time 0."""
    offset = 0.008
    cosine = ((time + offset) / (1 + offset) * math.pi / 2).cos()
    return (cosine / math.cos(offset / (1 + offset) * math.pi / 2)).square().clamp(1e-4, 1.0)


def _time(like: torch.Tensor, time: float) -> torch.Tensor:
    return torch.full_like(like[..., :1], time)


def _to(like: torch.Tensor, numbers: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(numbers).to(like)


def process_of(config: DenoisingConfig) -> Flow | Diffusion:
    """Returns the process between noise and actions of a head."""
    if isinstance(config, FlowHeadConfig):
        return Flow(config.unit, config.steps)
    return Diffusion(config.unit, config.levels, config.steps)
