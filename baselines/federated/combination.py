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
from fleet_tools.baselines.merging.moments.gate import RowGate
from fleet_tools.baselines.merging.moments.measurement import Moments, combine, solve
from fleet_tools.baselines.merging.queries.data_holder import Traffic, TrafficMeter
from fleet_tools.baselines.merging.queries.query import MomentQuery
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
    meter = TrafficMeter()
    gate = _density_gate(plan, transport, progress, meter)
    return _gated(plan, list(progress.robot_weights.values()), gate, meter)


def gated_refit(plan: FleetPlan, transport: Transport, progress: FleetProgress) -> Combination:
    """Combines robots' networks by densities, with last layers that are fitted together.

    Each robot is asked twice: for the moments of what its network reads, as by `density_gate`, and
    then, with the gate and all networks, for those of the weighted units and of the labels.

    Args:
        plan: The fleet; its policies have linear heads and no encoders.
        transport: Transport to its robots.
        progress: Progress after the last round, with the robots' weights.

    Raises:
        MessageError: A robot is lost, or its answer is invalid.
    """
    meter = TrafficMeter()
    gate = _density_gate(plan, transport, progress, meter)
    robots, last = list(progress.robot_weights.values()), plan.affine_maps[-1]
    pooled = _moments_of_all(plan, transport, progress, meter, gate)
    matrices = [last.matrix(robot) for robot in robots]
    parts, common = _fitted(pooled, matrices, torch.zeros_like(matrices[0][:, -1:]))
    # The weights of the gate sum to 1.
    parts = [torch.cat([part[:, :-1], part[:, -1:] + common], 1) for part in parts]
    return _gated(plan, _with_matrices(last, robots, parts), gate, meter)


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
    meter = TrafficMeter()
    robots, last = list(progress.robot_weights.values()), plan.affine_maps[-1]
    pooled = _moments_of_all(plan, transport, progress, meter, None)
    count, matrices = len(robots), [last.matrix(robot) for robot in robots]
    bias = torch.stack([matrix[:, -1:] for matrix in matrices]).mean(0)
    parts, bias = _fitted(pooled, [matrix[:, :-1] / count for matrix in matrices], bias)
    parts = [torch.cat([part * count, bias], 1) for part in parts]
    return _gated(plan, _with_matrices(last, robots, parts), None, meter)


def _density_gate(
    plan: FleetPlan, transport: Transport, progress: FleetProgress, meter: TrafficMeter
) -> RowGate:
    """Asks each robot for moments of what its network reads, and returns the gate."""
    first = plan.affine_maps[0]
    size = sum(map(len, plan.blueprint.scaling.mean.values()))
    means, factors = [], []
    for robot, own in progress.robot_weights.items():
        holder = CountingDataHolder(plan, transport, robot)
        moments = meter.ask_moments(holder, MomentQuery(own, (first.name,)), plan.affine_maps)
        mean, factor = _gaussian(moments[first.name], size)
        means.append(mean)
        factors.append(factor)
    sharpness = GateConfig(members=len(means)).sharpness
    return RowGate(first.name, torch.stack(means), torch.stack(factors), sharpness)


def _gaussian(moments: Moments, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns mean and whitening factor of the first inputs of a map, in float32."""
    products = moments.inputs[0]
    mean = products[-1, :size]
    covariance = products[:size, :size] - mean.outer(mean)
    covariance = covariance + _SPREAD * torch.eye(size, dtype=covariance.dtype)
    factor = torch.linalg.cholesky(torch.linalg.inv(covariance))
    return mean.float(), factor.float()


def _moments_of_all(
    plan: FleetPlan,
    transport: Transport,
    progress: FleetProgress,
    meter: TrafficMeter,
    gate: RowGate | None,
) -> Moments:
    """Returns moments of what the last maps of all networks read, and of the labels, pooled."""
    robots, last = progress.robot_weights, plan.affine_maps[-1]
    first, *others = robots.values()
    query = MomentQuery(first, (last.name,), "labels", beside=tuple(others), gate=gate)
    moments = [
        meter.ask_moments(CountingDataHolder(plan, transport, robot), query, plan.affine_maps)
        for robot in robots
    ]
    shares = normalize(progress.robot_steps, len(robots)).tolist()
    return combine([each[last.name] for each in moments], shares)


def _fitted(
    pooled: Moments, parts: Sequence[torch.Tensor], bias: torch.Tensor
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Returns the matrix that fits moments best, in the parts of the one that it should resemble.

    Args:
        pooled: Moments of inputs side by side, and of the labels.
        parts: Rows of the prior matrix for each model, (groups, inputs, outputs).
        bias: Its last row, (groups, 1, outputs).
    """
    fitted = solve(pooled, torch.cat([*parts, bias], 1), _RIDGE)
    *rows, bias = torch.split(fitted, [*(part.shape[1] for part in parts), 1], dim=1)
    return rows, bias


def _with_matrices(
    last: AffineMap, robots: Sequence[Tensors], matrices: Sequence[torch.Tensor]
) -> list[Tensors]:
    return [last.with_matrix(robot, matrix) for robot, matrix in zip(robots, matrices, strict=True)]


def _gated(
    plan: FleetPlan, members: Sequence[Tensors], gate: RowGate | None, meter: TrafficMeter
) -> Combination:
    """Returns networks as one policy, weighted by a gate or equally."""
    sharpness = 0.0 if gate is None else gate.sharpness
    config = plan.blueprint.config.model_copy(
        update={"gate": GateConfig(members=len(members), sharpness=sharpness)}
    )
    blueprint = plan.blueprint.model_copy(update={"config": config})
    weights = {
        f"members.{index}.{name}": tensor
        for index, member in enumerate(members)
        for name, tensor in member.items()
    }
    if gate is not None:
        weights |= {"gate.means": gate.means, "gate.factors": gate.factors}
    in_order = {name: weights[name] for name in blueprint.create_empty().state_dict()}
    return Combination(Checkpoint(blueprint, in_order), meter.traffic)


COMBINATIONS: Mapping[str, Callable[[FleetPlan, Transport, FleetProgress], Combination]] = {
    "density_gate": density_gate,
    "gated_refit": gated_refit,
    "concatenation": concatenation,
}
"""Combinations by name."""
