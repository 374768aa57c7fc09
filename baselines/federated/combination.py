"""Larger policies made of the robots' networks, after the last round.

They are no merges of one size: such a policy has the weights of all robots.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.progress import FleetProgress
from fleet_tools.baselines.federated.robot_holder import CountingDataHolder
from fleet_tools.baselines.federated.transport import Transport
from fleet_tools.baselines.merging.average import normalize
from fleet_tools.baselines.merging.moments.affine_maps import AffineMap
from fleet_tools.baselines.merging.moments.least_squares import solve
from fleet_tools.baselines.merging.moments.measurement import Moments, combine
from fleet_tools.baselines.merging.queries.data_holder import Traffic, TrafficMeter
from fleet_tools.baselines.merging.queries.moment_wire import MomentQuery
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.policies.config import GateConfig
from fleet_tools.baselines.training.state import Tensors

_SPREAD = 0.1
"""Variance added to each entry of the scaled state, so that one that never changes for a robot
leaves the others a say."""

_RIDGE = 1e-3
"""Weight of the mean of the last layers in their fit, as in the merging methods."""


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
    first = plan.affine_maps[0]
    size = sum(map(len, plan.blueprint.scaling.mean.values()))
    weights: dict[str, torch.Tensor] = {}
    means, factors = [], []
    meter = TrafficMeter()
    for index, (robot, own) in enumerate(progress.robot_weights.items()):
        holder = CountingDataHolder(plan, transport, robot)
        query = MomentQuery(own, (first.name,))
        moments = meter.ask_moments(holder, query, plan.affine_maps)
        mean, factor = _gaussian(moments[first.name], size)
        means.append(mean)
        factors.append(factor)
        weights |= _member(index, own)
    weights |= {"gate.means": torch.stack(means), "gate.factors": torch.stack(factors)}
    blueprint = _combined_blueprint(plan, GateConfig(members=len(means)))
    return Combination(Checkpoint(blueprint, _in_order(blueprint, weights)), meter.traffic)


def _gaussian(moments: Moments, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns mean and whitening factor of the first inputs of a map, in float32."""
    products = moments.inputs[0]
    mean = products[-1, :size]
    covariance = products[:size, :size] - mean.outer(mean)
    covariance = covariance + _SPREAD * torch.eye(size, dtype=covariance.dtype)
    factor = torch.linalg.cholesky(torch.linalg.inv(covariance))
    return mean.float(), factor.float()


def concatenation(plan: FleetPlan, transport: Transport, progress: FleetProgress) -> Combination:
    """Fits one last layer to the hidden units of all robots' networks side by side.

    Each robot is sent all networks, and asked for the second moments of what their last layers read
    and of the labels: one message. The policy is the mean of networks with the fitted layers.

    Args:
        plan: The fleet; its policies have linear heads.
        transport: Transport to its robots.
        progress: Progress after the last round, with the robots' weights.

    Raises:
        MessageError: A robot is lost, or its answer is invalid.
    """
    robots, last = progress.robot_weights, plan.affine_maps[-1]
    first, *others = robots.values()
    query = MomentQuery(first, (last.name,), "labels", beside=tuple(others))
    meter = TrafficMeter()
    moments = [
        meter.ask_moments(CountingDataHolder(plan, transport, robot), query, plan.affine_maps)
        for robot in robots
    ]
    shares = normalize(progress.robot_steps, len(robots)).tolist()
    pooled = combine([each[last.name] for each in moments], shares)

    members = _with_joint_head(last, list(robots.values()), pooled)
    weights: dict[str, torch.Tensor] = {}
    for index, member in enumerate(members):
        weights |= _member(index, member)
    blueprint = _combined_blueprint(plan, GateConfig(members=len(members), sharpness=0))
    return Combination(Checkpoint(blueprint, _in_order(blueprint, weights)), meter.traffic)


def _with_joint_head(last: AffineMap, models: Sequence[Tensors], pooled: Moments) -> list[Tensors]:
    """Returns models whose mean output is the affine map that fits the moments best.

    Args:
        last: The last affine map of the models.
        models: The models.
        pooled: Moments of what their last maps read, one after another, and of the labels.
    """
    count = len(models)
    matrices = [last.matrix(model) for model in models]
    units = matrices[0].shape[1] - 1
    bias = torch.stack([matrix[:, -1:] for matrix in matrices]).mean(0)
    mean = torch.cat([*(matrix[:, :-1] / count for matrix in matrices), bias], 1)
    fitted = solve(pooled, mean, _RIDGE)
    parts = [fitted[:, k * units : (k + 1) * units] * count for k in range(count)]
    return [
        last.with_matrix(model, torch.cat([part, fitted[:, -1:]], 1))
        for model, part in zip(models, parts, strict=True)
    ]


def _combined_blueprint(plan: FleetPlan, gate: GateConfig) -> Blueprint:
    config = plan.blueprint.config.model_copy(update={"gate": gate})
    return plan.blueprint.model_copy(update={"config": config})


def _member(index: int, weights: Tensors) -> Tensors:
    return {f"members.{index}.{name}": tensor for name, tensor in weights.items()}


def _in_order(blueprint: Blueprint, weights: Tensors) -> Tensors:
    return {name: weights[name] for name in blueprint.create_empty().state_dict()}


COMBINATIONS: Mapping[str, Callable[[FleetPlan, Transport, FleetProgress], Combination]] = {
    "density_gate": density_gate,
    "concatenation": concatenation,
}
"""Combinations by name."""
