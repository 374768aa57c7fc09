"""A body that attends to the last steps of an episode: a causal Transformer.

An episode may be of any length, so positions are ages, numbers of steps since a step. Every layer
attends to the last `context` steps, and adds a learned number to each score, one for each head and
age (Shaw et al. 2018 and Raffel et al. 2020 learn such positions). Keys and values of these steps
are the hidden state, so that an action costs the work of one step, and equals the result of a pass
over the whole trajectory. L layers reach L (context - 1) steps back. Norms come first (Xiong et al.
2020); there is no dropout.

If it is conditioned on the task, a token made of the task's features in the first step of the
episode comes before all steps. Every step attends to it, however long ago it was.
"""

from collections.abc import Iterable
from typing import cast

import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from fleet_merging.symmetry import layers
from fleet_merging.symmetry import layers as attention
from fleet_merging.symmetry.layers import Table
from fleet_tools.baselines.policies.bodies import Body, Hidden
from fleet_tools.baselines.policies.part_configs import TransformerConfig


class TransformerBody(Body):
    """A causal Transformer.

    Its hidden state has a tensor for each layer, (2, B, heads, steps, width / heads). These are
    keys and values of the task's token, if there is one, and of at most `context` - 1 steps, the
    oldest first.

    Args:
        config: Its configuration.
        inputs: Number of features that it reads.
        task: Number of further features that say which task it is; 0 without a token.
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
            attention.attention(
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
