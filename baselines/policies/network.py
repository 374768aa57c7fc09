"""Networks of policies: features of all entries, a body, and a head; or several networks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from fleet_merging.errors import MergeError
from fleet_merging.moments.gate import density_weights
from fleet_merging.symmetry.layers import Table
from fleet_merging.symmetry.table import Symmetry
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.bodies import Body, Hidden
from fleet_tools.baselines.policies.config import EncodedKind, GateConfig
from fleet_tools.baselines.policies.encoders import Encoder
from fleet_tools.baselines.policies.heads import DenoisingHead, LinearHead, side_by_side
from fleet_tools.baselines.policies.layout import entries_with_masks, numbers_read

FEATURES = "<features>"
"""Name of precomputed features, see `PolicyNetwork.features`, as the network's only entry; entries
of observations never have this name."""

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

    Attributes:
        inputs: Number of features, without the masks of the task.
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
        self.inputs = inputs
        self._mask_names = entries_with_masks(read) if config.conditioned_on_task else []
        masks = sum(read[name].shape[0] for name in self._mask_names)
        sizes = (inputs, masks) if masks > 0 else (inputs,)
        self.body: Body = config.body.create(*sizes)
        self.head: LinearHead | DenoisingHead = config.head.create(
            self.body.width, blueprint.numbers
        )

    def forward(
        self,
        observations: Mapping[str, torch.Tensor],
        hidden: Hidden | None = None,
        *noisy: torch.Tensor,
    ) -> tuple[torch.Tensor, Hidden]:
        """Computes the chunks of actions of T steps of B trajectories.

        Args:
            observations: The entries of the policy by name, (B, T, *shape), in their own dtypes or,
                except for images, in the weights'. Or the `FEATURES` alone.
            hidden: Hidden state after the steps before; None at the beginning of episodes.
            noisy: Only of a head that denoises, see `DenoisingHead.outputs`: its initial noise, (B,
                T, chunk * 6); zeros by default. In training, times follow, (B, T, 1), for the
                network's answers. Then there may be several draws for each step, (B, T, draws,
                chunk * 6).

        Returns:
            Actions (B, T, chunk * 6), the step's own first, not clipped, or the answer; and the
            hidden state after the last step.
        """
        return self.decide(self.features(observations), hidden, *noisy)

    def features(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns the features of the body, (B, T, n); each step's depend only on it.

        The last ones are the masks that identify the task, if the body is conditioned on it.
        """
        if (given := observations.get(FEATURES)) is not None:
            return given
        parts: list[torch.Tensor] = []
        for encoding in self._encodings:
            # One pass, so that BatchNorm has the same statistics in training and acting: of all
            # cameras together.
            rows = torch.stack([observations[name] for name in encoding.entries])
            parts += encoding.encoder(rows)
        if self._state_names:
            parts.append(self.scaled_state(observations))
        parts += [observations[name][..., -1] for name in self._mask_names]
        return torch.cat(parts, -1)

    def scaled_state(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns all entries without an encoder, scaled, (B, T, n); hidden numbers are 0."""
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


class DensityGate(nn.Module):
    """Weights of the members, in proportion to powers of Gaussian densities.

    Args:
        config: Configuration of the ensemble.
        size: Number of features.
    """

    means: torch.Tensor
    factors: torch.Tensor

    def __init__(self, config: GateConfig, size: int) -> None:
        super().__init__()
        self._sharpness = config.sharpness
        self.register_buffer("means", torch.zeros(config.members, size))
        # Factors of the inverse covariances, factor @ factor.T.
        self.register_buffer("factors", torch.eye(size).repeat(config.members, 1, 1))

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        """Returns weights that sum to 1, (..., n) -> (..., members)."""
        return density_weights(state.unsqueeze(-2), self.means, self.factors, self._sharpness)


class GatedNetwork(nn.Module):
    """Networks of one kind as a density-gated ensemble.

    A network that learned from one robot's data is right where these data lie. `gate` has a
    Gaussian for each network: the mean and covariance of a common state over its data. This state
    is the scaled one, or the features of one network's encoders. The networks' answers have weights
    in proportion to powers of these densities. This is the mixture of experts of Xu et al. (1995),
    without training. It needs the memory and computation of all its members together.

    Answers of heads that denoise are weighted at each step from noise to actions, see
    `heads.side_by_side`.

    Args:
        config: Configuration of the ensemble.
        members: The networks; they scale the state alike.

    Attributes:
        gate: The weights of the members; None for their mean.
    """

    def __init__(self, config: GateConfig, members: list[PolicyNetwork]) -> None:
        super().__init__()
        self.members, self._reader = nn.ModuleList(members), config.reader
        self.gate = DensityGate(config, members[0].inputs) if config.sharpness > 0 else None

    def forward(
        self,
        observations: Mapping[str, torch.Tensor],
        hidden: Hidden | None = None,
        *noisy: torch.Tensor,
    ) -> tuple[torch.Tensor, Hidden]:
        """Computes chunks of actions; see `PolicyNetwork.forward`.

        The hidden state has all members' tensors, one after the other.
        """
        members = [cast(PolicyNetwork, member) for member in self.members]
        length = 0 if hidden is None else len(hidden) // len(members)
        features = [member.features(observations) for member in members]
        units, states = [], ()
        for index, member in enumerate(members):
            own = None if hidden is None else hidden[index * length : (index + 1) * length]
            read, state = member.body(features[index], own)
            units.append(read)
            states += state
        weights = None
        if self.gate is not None:
            weights = self.gate(features[self._reader][..., : members[0].inputs])

        heads = [member.head for member in members]
        answers = side_by_side(heads, units)

        def answer(*asked: torch.Tensor) -> torch.Tensor:
            each = answers(*asked)
            if weights is None:
                return each.mean(-1)
            draws = (1,) * (each.dim() - 1 - weights.dim())  # none, or an axis of them
            return (each * weights.reshape(*weights.shape[:-1], *draws, 1, -1)).sum(-1)

        return heads[0].outputs(answer, units[0], *noisy), states

    def symmetry(self) -> Symmetry:
        """Raises an error, since an ensemble is not merged itself.

        Raises:
            MergeError: Always.
        """
        raise MergeError("A policy with a gate is already an ensemble. Merge its members instead.")
