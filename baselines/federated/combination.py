"""Larger policies made of the robots' networks, after the last round.

They are no merges of one size: such a policy has the weights of all robots.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.progress import FleetProgress
from fleet_tools.baselines.federated.robot_holder import CountingDataHolder
from fleet_tools.baselines.federated.transport import Transport
from fleet_tools.baselines.merging.moments.measurement import Moments
from fleet_tools.baselines.merging.queries.data_holder import Traffic, ask_moments
from fleet_tools.baselines.merging.queries.moment_wire import MomentQuery
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.policies.config import GateConfig

_SPREAD = 0.1
"""Variance added to each entry of the scaled state, so that one that never changes for a robot
leaves the others a say."""


@dataclass(frozen=True, eq=False)
class Combination:
    """A policy made of the robots' networks.

    Attributes:
        checkpoint: The policy.
        traffic: Messages to and from robots, beside those of the rounds.
    """

    checkpoint: Checkpoint
    traffic: Traffic


def density_gate(plan: FleetPlan, transport: Transport, progress: FleetProgress) -> Combination:
    """Combines robots' networks by the densities of the states that they learned from.

    Each robot is asked for the second moments of what its network reads: one message.

    Args:
        plan: The fleet; its policies have no encoders.
        transport: Transport to its robots.
        progress: Progress after the last round, with the robots' weights.

    Raises:
        MessageError: A robot is lost, or its answer is invalid.
    """
    member = plan.blueprint
    gated = member.config.model_copy(
        update={"gate": GateConfig(members=len(progress.robot_weights))}
    )
    blueprint = member.model_copy(update={"config": gated})
    first = plan.affine_maps[0]
    size = sum(map(len, member.scaling.mean.values()))
    weights: dict[str, torch.Tensor] = {}
    means, factors = [], []
    traffic = Traffic()
    for index, (robot, own) in enumerate(progress.robot_weights.items()):
        query = MomentQuery(own, (first.name,))
        holder = CountingDataHolder(plan, transport, robot)
        moments, cost = ask_moments(holder, query, plan.affine_maps)
        traffic += cost
        mean, factor = _gaussian(moments[first.name], size)
        means.append(mean)
        factors.append(factor)
        weights |= {f"members.{index}.{name}": tensor for name, tensor in own.items()}
    weights |= {"gate.means": torch.stack(means), "gate.factors": torch.stack(factors)}
    in_order = {name: weights[name] for name in blueprint.create_empty().state_dict()}
    return Combination(Checkpoint(blueprint, in_order), traffic)


def _gaussian(moments: Moments, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns mean and whitening factor of the first inputs of a map, in float32."""
    products = moments.inputs[0]
    mean = products[-1, :size]
    covariance = products[:size, :size] - mean.outer(mean)
    covariance = covariance + _SPREAD * torch.eye(size, dtype=covariance.dtype)
    factor = torch.linalg.cholesky(torch.linalg.inv(covariance))
    return mean.float(), factor.float()


COMBINATIONS: Mapping[str, Callable[[FleetPlan, Transport, FleetProgress], Combination]] = {
    "density_gate": density_gate,
}
"""Combinations by name."""
