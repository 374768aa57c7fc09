"""The network of a policy: features of all that it reads, a body, and a linear head."""

from collections.abc import Mapping

import torch
from torch import nn

from fleet_tools.baselines.merging.symmetry.layers import linear
from fleet_tools.baselines.merging.symmetry.table import Symmetry
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.mlp import Hidden


class PolicyNetwork(nn.Module):
    """Made by `Blueprint.create`. Its weights are all that its state dict holds.

    Args:
        blueprint: What it is built from.
    """

    def __init__(self, blueprint: Blueprint) -> None:
        super().__init__()
        config = blueprint.config
        self.cloud_names = blueprint.names("cloud")
        self.picture_names = blueprint.names("picture")
        self.state_names = blueprint.names("state")
        mean, std = map(torch.tensor, blueprint.scaling.arrays(self.state_names))
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("std", std, persistent=False)
        inputs = len(mean)
        self.clouds = self.pictures = None
        if config.clouds is not None:
            self.clouds = config.clouds.create()
            inputs += len(self.cloud_names) * self.clouds.width
        if config.pictures is not None:
            self.pictures = config.pictures.create()
            inputs += len(self.picture_names) * self.pictures.width
        self.body = config.body.create(inputs)
        self.head = nn.Linear(self.body.width, blueprint.action.shape[0])

    def forward(
        self, observations: Mapping[str, torch.Tensor], hidden: Hidden | None = None
    ) -> tuple[torch.Tensor, Hidden]:
        """What the policy does on B trajectories, for T steps.

        Args:
            observations: By name, the entries that it reads, (B, T, *shape), in their own dtypes
                or, but for pictures, in that of the weights.
            hidden: What it returned for the steps before; None at the start of episodes.

        Returns:
            Actions (B, T, 6), not clipped, and its hidden state after the last step.
        """
        return self.decide(self.features(observations), hidden)

    def features(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """What the body reads, (B, T, n), each step by itself; a frozen encoder's may be kept."""
        parts = [self.clouds(observations[name]) for name in self.cloud_names]
        parts += [self.pictures(observations[name]) for name in self.picture_names]
        if self.state_names:
            state = torch.cat([observations[name].flatten(2) for name in self.state_names], -1)
            parts.append((state - self.mean) / self.std)
        return torch.cat(parts, -1)

    def decide(
        self, features: torch.Tensor, hidden: Hidden | None = None
    ) -> tuple[torch.Tensor, Hidden]:
        """The rest of `forward`."""
        units, hidden = self.body(features, hidden)
        return self.head(units), hidden

    def symmetry(self, streams: bool = True) -> Symmetry:
        """The table of its axes, for merging.

        Args:
            streams: Whether the units of residual streams (a Transformer's, a ResNet's) may be
                permuted, too. That is as true as all the rest, but ties many layers together.
        """
        table, inputs = {}, []
        encoders = (
            ("clouds", self.clouds, self.cloud_names),
            ("pictures", self.pictures, self.picture_names),
        )
        for module, encoder, names in encoders:
            if encoder is not None:
                its_table, axis = encoder.symmetry(module, streams)
                table |= its_table
                inputs += [axis] * len(names)
        if self.state_names:
            inputs.append(f"_state:{len(self.mean)}")
        body, units = self.body.symmetry("body", " | ".join(inputs), streams)
        return Symmetry.of(table, body, linear("head", units, "_action"))
