"""The network of a policy: features of all entries that it reads, a body, and a head."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from fleet_merging.symmetry.layers import Table
from fleet_merging.symmetry.table import Symmetry
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.bodies import Body, Hidden
from fleet_tools.baselines.policies.config import EncodedKind
from fleet_tools.baselines.policies.encoders import Encoder
from fleet_tools.baselines.policies.heads import DenoisingHead, LinearHead
from fleet_tools.baselines.policies.layout import entries_with_masks, numbers_read

FEATURES = "<features>"
"""Name by which a network is given what `PolicyNetwork.features` returns, as its only entry; no
entry of an observation has such a name."""

ENCODER_MODULES: dict[EncodedKind, str] = {"cloud": "clouds", "image": "images"}
"""Names of the encoders in state dicts, which checkpoints contain."""


@dataclass(frozen=True)
class _Encoding:
    """An encoder, and the entries of the observation that it reads.

    Attributes:
        module: Name of the encoder in the network.
        encoder: The encoder, the same for all entries.
        entries: Names of the entries.
    """

    module: str
    encoder: Encoder
    entries: list[str]


class PolicyNetwork(nn.Module):
    """A policy's network, as `Blueprint.create` returns it; its state dict holds all its weights.

    Args:
        blueprint: Blueprint of the policy.
    """

    mean: torch.Tensor
    std: torch.Tensor
    shown: torch.Tensor

    def __init__(self, blueprint: Blueprint) -> None:
        super().__init__()
        self._blueprint, self._state_names = blueprint, blueprint.names("state")
        mean, std = map(torch.tensor, blueprint.scaling.arrays(self._state_names))
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("std", std, persistent=False)
        shown = numbers_read(
            blueprint.config, blueprint.observation, blueprint.scaling, self._state_names
        )
        self._hides = not shown.all()
        if self._hides:
            self.register_buffer("shown", torch.tensor(shown), persistent=False)
        inputs = len(mean)
        self._encodings: list[_Encoding] = []
        for kind, config in blueprint.config.encoders.items():
            encoding = _Encoding(ENCODER_MODULES[kind], config.create(), blueprint.names(kind))
            self.add_module(encoding.module, encoding.encoder)
            self._encodings.append(encoding)
            inputs += len(encoding.entries) * encoding.encoder.width
        config, read = blueprint.config, blueprint.observation
        self._mask_names = entries_with_masks(read) if config.conditioned_on_task else []
        masks = sum(read[name].shape[0] for name in self._mask_names)
        sizes = (inputs, masks) if masks > 0 else (inputs,)
        self.body: Body = config.body.create(*sizes)
        numbers = config.chunk * blueprint.action.shape[0]
        self.head: LinearHead | DenoisingHead = config.head.create(self.body.width, numbers)

    def forward(
        self,
        observations: Mapping[str, torch.Tensor],
        hidden: Hidden | None = None,
        *noisy: torch.Tensor,
    ) -> tuple[torch.Tensor, Hidden]:
        """Computes the chunks of actions of T steps of B trajectories.

        Args:
            observations: The entries that the policy reads by name, (B, T, *shape), in their own
                dtypes or, except for images, in the weights'; or the `FEATURES` alone.
            hidden: Hidden state after the steps before; None at the beginning of episodes.
            noisy: What a head that is not linear also reads, see `DenoisingHead.forward`. It is the
                noise from which it begins, (B, T, chunk * 6), zeros if it is not given; and times
                (B, T, 1), if the network's answer at these is wanted, as in training.

        Returns:
            Actions (B, T, chunk * 6), the step's own first, not clipped, and the hidden
            state after the last step.
        """
        given = observations.get(FEATURES)
        return self.decide(self.features(observations) if given is None else given, hidden, *noisy)

    def features(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns the features that the body reads, (B, T, n); each step's depend on it alone.

        The last ones are the masks that say which task it is, if the body is conditioned on them.
        """
        parts: list[torch.Tensor] = []
        for encoding in self._encodings:
            # In one pass, so that BatchNorm learns with the statistics with which it will act,
            # those of all cameras together.
            rows = torch.stack([observations[name] for name in encoding.entries])
            parts += encoding.encoder(rows)
        if self._state_names:
            parts.append(self.scaled_state(observations))
        parts += [observations[name][..., -1] for name in self._mask_names]
        return torch.cat(parts, -1)

    def scaled_state(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns all entries that no encoder reads, scaled, (B, T, n); hidden numbers are 0."""
        state = torch.cat([observations[name].flatten(2) for name in self._state_names], -1)
        scaled = (state - self.mean) / self.std
        return torch.where(self.shown, scaled, 0.0) if self._hides else scaled

    def decide(
        self, features: torch.Tensor, hidden: Hidden | None = None, *noisy: torch.Tensor
    ) -> tuple[torch.Tensor, Hidden]:
        """Computes actions from features; see `forward`."""
        units, state = self.body(features, hidden)
        return self.head(units, *noisy), state

    def symmetry(self) -> Symmetry:
        """Returns the table of the network's axes, for merging."""
        if self._blueprint.config.own_classes:
            return self._blueprint.symmetry()
        table: Table = {}
        inputs: list[str] = []
        for encoding in self._encodings:
            encoder_table, features = encoding.encoder.symmetry(encoding.module)
            table |= encoder_table
            inputs += [features] * len(encoding.entries)
        if self._state_names:
            inputs.append(f"_state:{len(self.mean)}")
        body, units = self.body.symmetry("body", " | ".join(inputs))
        return Symmetry.of(table, body, self.head.symmetry("head", units))
