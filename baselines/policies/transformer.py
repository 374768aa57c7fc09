"""A body that attends to the last steps of an episode: a causal Transformer.

A policy acts for as long as an episode lasts, so positions are ages: how many steps ago something
was. Every layer looks at the last `context` steps and adds a learned number to each score, one for
each head and age (Shaw et al. 2018 and Raffel et al. 2020 learn such positions), so an episode may
be of any length. Keys and values of these steps are the hidden state: to act costs one step's
work, and gives what a pass over the whole trajectory gives. L layers see L (context - 1) steps
back. Norms come first (Xiong et al. 2020); there is no dropout.
"""

import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from fleet_tools.baselines.merging.symmetry import attention, layers
from fleet_tools.baselines.merging.symmetry.layers import Table
from fleet_tools.baselines.policies.config import Transformer
from fleet_tools.baselines.policies.mlp import Hidden


class TransformerBody(nn.Module):
    """See `Transformer`, and `mlp` for what a body is.

    Its hidden state has a tensor for each layer, (2, B, heads, steps, width / heads): keys and
    values of at most `context` - 1 steps, the oldest first.
    """

    def __init__(self, config: Transformer, inputs: int) -> None:
        super().__init__()
        self.width = config.width
        self.embedding = nn.Linear(inputs, config.width)
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)

    def forward(
        self, features: torch.Tensor, hidden: Hidden | None = None
    ) -> tuple[torch.Tensor, Hidden]:
        stream = self.embedding(features)
        states = []
        for i, block in enumerate(self.blocks):
            stream, state = block(stream, None if hidden is None else hidden[i])
            states.append(state)
        return self.norm(stream), tuple(states)

    def symmetry(self, module: str, inputs: str, streams: bool = True) -> tuple[Table, str]:
        stream = "stream" if streams else "_stream"
        table = layers.linear(f"{module}.embedding", inputs, stream)
        for i, block in enumerate(self.blocks):
            table |= block.symmetry(f"{module}.blocks.{i}", f"layer{i}", stream)
        return table | layers.layer_norm(f"{module}.norm", stream), stream


class _Block(nn.Module):
    """Attention, then a feedforward part, each added to the stream."""

    def __init__(self, config: Transformer) -> None:
        super().__init__()
        width = config.width
        self.heads, self.context = config.heads, config.context
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output = nn.Linear(width, width)
        self.ages = nn.Parameter(0.02 * torch.randn(config.context, config.heads))
        self.up = nn.Linear(width, config.feedforward)
        self.down = nn.Linear(config.feedforward, width)

    def forward(self, stream, past):
        mixed, past = self._attend(self.norm1(stream), past)
        stream = stream + mixed
        return stream + self.down(gelu(self.up(self.norm2(stream)))), past

    def _attend(self, x, past):
        query, key, value = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, heads, T, k)
            for layer in (self.query, self.key, self.value)
        )
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        scores = self._scores(x.shape[1], key.shape[2])
        mixed = scaled_dot_product_attention(query, key, value, scores.to(query.dtype))
        kept = max(key.shape[2] - (self.context - 1), 0)
        state = torch.stack([key[:, :, kept:], value[:, :, kept:]])
        return self.output(mixed.transpose(1, 2).flatten(2)), state

    def _scores(self, queries: int, keys: int) -> torch.Tensor:
        """What is added to the scores of the last `queries` of `keys` steps, (heads, q, k)."""
        steps = torch.arange(keys, device=self.ages.device)
        age = steps[keys - queries :, None] - steps  # (q, k)
        scores = self.ages[age.clamp(0, self.context - 1)].movedim(-1, 0)
        return scores.masked_fill((age < 0) | (age >= self.context), -torch.inf)

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
