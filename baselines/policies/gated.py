"""Several networks as one policy, each weighted by how well it knows what is observed.

A network that learned from one robot's data is right where these data lie. The gate holds the mean
and the covariance of the state that each network has learned from, and weighs the networks'
actions by powers of the densities of these Gaussians at the present state: a mixture of experts
with the gate of Xu et al. (1995), which needs no training. In memory and computation it is as large
as all its members together.
"""

from collections.abc import Mapping
from typing import cast

import torch
from torch import nn

from fleet_merging.errors import MergeError
from fleet_merging.moments.gate import density_weights
from fleet_merging.symmetry.table import Symmetry
from fleet_tools.baselines.policies.bodies import Hidden
from fleet_tools.baselines.policies.config import GateConfig
from fleet_tools.baselines.policies.network import PolicyNetwork


class DensityGate(nn.Module):
    """Weights of the members, in proportion to powers of Gaussian densities.

    Args:
        config: Configuration of the gate.
        size: Number of entries of the state.
    """

    means: torch.Tensor
    factors: torch.Tensor

    def __init__(self, config: GateConfig, size: int) -> None:
        super().__init__()
        self._sharpness = config.sharpness
        self.register_buffer("means", torch.zeros(config.members, size))
        # Of the inverse covariances, factor @ factor.T.
        self.register_buffer("factors", torch.eye(size).repeat(config.members, 1, 1))

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        """Returns weights that sum to 1, (..., n) -> (..., members)."""
        return density_weights(state.unsqueeze(-2), self.means, self.factors, self._sharpness)


class GatedNetwork(nn.Module):
    """Networks of one kind, and a gate that weighs their actions.

    Args:
        config: Configuration of the gate.
        members: The networks; they scale the state alike.

    Attributes:
        gate: The gate; None for the mean of the members.
    """

    def __init__(self, config: GateConfig, members: list[PolicyNetwork]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.gate = DensityGate(config, len(members[0].mean)) if config.sharpness > 0 else None

    def forward(
        self,
        observations: Mapping[str, torch.Tensor],
        hidden: Hidden | None = None,
        *noisy: torch.Tensor,
    ) -> tuple[torch.Tensor, Hidden]:
        """Computes chunks of actions; see `PolicyNetwork.forward`.

        The hidden state consists of all members', one after the other.
        """
        members = [cast(PolicyNetwork, member) for member in self.members]
        length = 0 if hidden is None else len(hidden) // len(members)
        actions, states = [], ()
        for index, member in enumerate(members):
            own = None if hidden is None else hidden[index * length : (index + 1) * length]
            answer, state = member(observations, own, *noisy)
            actions.append(answer)
            states += state
        answers = torch.stack(actions, -1)
        if self.gate is None:
            return answers.mean(-1), states
        weights = self.gate(members[0].scaled_state(observations))
        return (answers * weights.unsqueeze(-2)).sum(-1), states

    def symmetry(self) -> Symmetry:
        """Raises an error, since such a policy is made of merged ones and not merged itself.

        Raises:
            MergeError: Always.
        """
        raise MergeError(
            "A policy with a gate is itself a combination of policies. Merge its members."
        )
