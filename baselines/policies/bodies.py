"""Bodies of networks, which turn features into units."""

import abc
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from fleet_merging.symmetry import layers
from fleet_merging.symmetry.layers import Table
from fleet_tools.baselines.policies.part_configs import (
    MLPConfig,
    RecurrentConfig,
    TransformerConfig,
)

Hidden = tuple[torch.Tensor, ...]
"""State of a body after a step; None stands for the beginning of an episode."""


class Body(nn.Module, abc.ABC):
    """Turns features into units, step by step.

    One pass over T steps equals several passes over its parts, each with the hidden state of the
    one before. No step depends on a later one, so trajectories of different lengths may be padded
    at the end.

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


class MLPBody(Body):
    """A multilayer perceptron; its hidden state is empty.

    With conditioning, a linear map of the task's features scales and shifts units before each ReLU
    (Perez et al. 2018, eq. 3). At first it changes nothing.

    Args:
        config: Its configuration.
        inputs: Number of features that it reads.
        task: Number of further features that identify the task; 0 without conditioning.
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

        Under autocast, PyTorch would use oneDNN's LSTM in the features' precision, and then cast
        them to one that the processor may not support.
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


class TransformerBody(Body):
    """A causal Transformer, which attends to the last steps of an episode.

    Episodes have any length, so positions are ages, numbers of steps since a step. Every layer
    attends to the last `context` steps, and adds a learned number to each score, by head and age.
    Shaw et al. 2018 and Raffel et al. 2020 learn such positions. Keys and values of these steps are
    the hidden state. So an action costs the work of one step, and equals the result of a pass over
    the trajectory. L layers reach L (context - 1) steps back. Norms come first (Xiong et al. 2020);
    there is no dropout.

    If it is conditioned on the task, a token made of the task's features in the first step of the
    episode precedes all steps. Every step attends to it, at any age.

    Its hidden state has a tensor for each layer, (2, B, heads, steps, width / heads). These are
    keys and values of the task's token, if there is one, and of at most `context` - 1 steps, the
    oldest first.

    Args:
        config: Its configuration.
        inputs: Number of features that it reads.
        task: Number of further features that identify the task; 0 without a token.
    """

    def __init__(self, config: TransformerConfig, inputs: int, task: int = 0) -> None:
        super().__init__()
        self.width, self._inputs = config.width, inputs
        self.embedding = nn.Linear(inputs, config.width)
        self.blocks = nn.ModuleList(
            _AttentionBlock(config, int(task > 0)) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.width)
        self.token = nn.Linear(task, config.width) if task > 0 else None

    def forward(
        self, features: torch.Tensor, hidden: Hidden | None = None
    ) -> tuple[torch.Tensor, Hidden]:
        """Computes the units of T steps; see `Body.forward`."""
        stream = self.embedding(features[..., : self._inputs])
        if self.token is not None and hidden is None:
            stream = torch.cat([self.token(features[:, :1, self._inputs :]), stream], 1)
        states = []
        for i, block in enumerate(self.blocks):
            stream, state = block(stream, None if hidden is None else hidden[i])
            states.append(state)
        return self.norm(stream[:, -features.shape[1] :]), tuple(states)

    def symmetry(self, module: str, inputs: str) -> tuple[Table, str]:
        """Returns the table of its axes, and the axis of its units; see `Body.symmetry`."""
        stream = "stream"
        table = layers.linear(f"{module}.embedding", inputs, stream)
        for i, block in enumerate(cast(Iterable[_AttentionBlock], self.blocks)):
            table |= block.symmetry(f"{module}.blocks.{i}", f"layer{i}", stream)
        if self.token is not None:
            table |= layers.linear(f"{module}.token", "_task", stream)
        return table | layers.layer_norm(f"{module}.norm", stream), stream


class _AttentionBlock(nn.Module):
    """Attention, then a feedforward part, each added to the stream.

    Args:
        config: Configuration of the body.
        tokens: Number of tokens before the steps, 0 or 1.
    """

    def __init__(self, config: TransformerConfig, tokens: int) -> None:
        super().__init__()
        width = config.width
        self.heads, self.context, self._tokens = config.heads, config.context, tokens
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output = nn.Linear(width, width)
        # The last row is the token's, if there is one.
        self.ages = nn.Parameter(0.02 * torch.randn(config.context + tokens, config.heads))
        self.up = nn.Linear(width, config.feedforward)
        self.down = nn.Linear(config.feedforward, width)

    def forward(
        self, stream: torch.Tensor, past: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the stream after this block, and its keys and values, see `TransformerBody`."""
        mixed, past = self._attend(self.norm1(stream), past)
        stream = stream + mixed
        return stream + self.down(gelu(self.up(self.norm2(stream)))), past

    def _attend(
        self, x: torch.Tensor, past: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        query, key, value = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, heads, T, k)
            for layer in (self.query, self.key, self.value)
        )
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        scores = self._scores(x.shape[1], key.shape[2])
        mixed = scaled_dot_product_attention(query, key, value, scores.to(query.dtype))
        first = max(key.shape[2] - (self.context - 1), self._tokens)
        kept = [*range(self._tokens), *range(first, key.shape[2])]
        state = torch.stack([key[:, :, kept], value[:, :, kept]])
        return self.output(mixed.transpose(1, 2).flatten(2)), state

    def _scores(self, queries: int, keys: int) -> torch.Tensor:
        """Returns the numbers added to the scores, (heads, queries, keys).

        Args:
            queries: Number of the last steps, which attend.
            keys: Number of steps attended to.
        """
        steps = torch.arange(keys, device=self.ages.device)
        age = steps[keys - queries :, None] - steps  # (q, k)
        seen = (age >= 0) & (age < self.context)
        age = age.clamp(0, self.context - 1)
        if self._tokens > 0:
            seen[:, 0], age[:, 0] = True, self.context
        return self.ages[age].movedim(-1, 0).masked_fill(~seen, -torch.inf)

    def symmetry(self, module: str, prefix: str, stream: str) -> Table:
        head = f"{prefix}.head"
        return (
            layers.attention(
                *(f"{module}.{name}" for name in ("query", "key", "value", "output")),
                heads=self.heads,
                head=head,
                units=(f"{prefix}.qk", f"{prefix}.v"),
                residual=stream,
            )
            | {f"{module}.ages": f"_age {head}"}
            | layers.mlp([f"{module}.up", f"{module}.down"], [stream, f"{prefix}.h", stream])
            | layers.layer_norm(f"{module}.norm1", stream)
            | layers.layer_norm(f"{module}.norm2", stream)
        )
