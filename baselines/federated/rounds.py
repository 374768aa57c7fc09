"""One round of a fleet: local updates, their merge, and its evaluation."""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleet_tools.baselines.federated.closing import LATE
from fleet_tools.baselines.federated.messages import (
    LocalUpdate,
    LocalUpdateRequest,
    decode_update,
    encode_request,
)
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.robot import local_data_holder
from fleet_tools.baselines.federated.robot_holder import CountingDataHolder, LostRobotError
from fleet_tools.baselines.federated.server_optimizer import ServerState, server_step
from fleet_tools.baselines.federated.transport import LostRobot, Transport
from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.methods import registry
from fleet_tools.baselines.merging.modules import recompute
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult
from fleet_tools.baselines.merging.queries.data_holder import DataHolder, Traffic
from fleet_tools.baselines.merging.soundness import require_sound
from fleet_tools.baselines.training.state import DivergedError, Tensors, TrainingError


@dataclass(frozen=True, eq=False)
class RobotResult:
    """Result of a robot in a round.

    Attributes:
        update: Its local update; None if the robot was lost before it sent one.
        left_out: Why it was left out of the merge; None if it was merged.
        traffic: Messages to and from the robot.
    """

    update: LocalUpdate | None
    left_out: str | None
    traffic: Traffic

    @property
    def merged_update(self) -> LocalUpdate | None:
        """The local update, if it was merged."""
        return self.update if self.left_out is None else None


@dataclass(frozen=True, eq=False)
class RoundResult:
    """Result of a round.

    Attributes:
        number: Number of the round, from 1.
        weights: Merged weights, after the server's step if it has an optimizer.
        server_state: State of the server's optimizer.
        loss: Loss of the merged policy on the held-out episodes.
        moved_fraction: Fraction of the units that alignment moved, see
            `PermutationGroup.moved_fraction`; None if its permutations are soft.
        robots: Results of the participants, by robot number.
    """

    number: int
    weights: Tensors
    server_state: ServerState
    loss: float
    moved_fraction: float | None
    robots: Mapping[int, RobotResult]


def run_round(
    plan: FleetPlan,
    transport: Transport,
    number: int,
    weights: Tensors | None,
    stored_replies: Mapping[int, bytes],
    store_reply: Callable[[int, bytes], None] = lambda robot, reply: None,
    server_state: ServerState | None = None,
) -> RoundResult:
    """Runs one round.

    Args:
        plan: The fleet.
        transport: Transport to its robots.
        number: Number of the round, from 1.
        weights: Merged weights of the round before; None in the first.
        stored_replies: Valid replies to this round that are stored already, by robot.
        store_reply: Called with each new valid reply, and its robot before it.
        server_state: State of the server's optimizer after the round before; None in the first.

    Raises:
        TrainingError: All robots are lost.
        DivergedError: The loss of the merged weights is not finite.
        FleetToolsError: An error of the merging method.
    """
    participants = plan.participants(number)
    results = _local_updates(
        plan, transport, number, weights, participants, stored_replies, store_reply
    )
    base = plan.first_base() if weights is None else weights
    merge, results = _merge(plan, transport, number, results, base)
    merged, after, loss = after_merge(plan, number, base, merge.state, server_state or {})
    group = plan.blueprint.symmetry().group(merged)
    moved_fraction = group.moved_fraction(merge.permutations)
    return RoundResult(
        number=number,
        weights=merged,
        server_state=after,
        loss=loss,
        moved_fraction=moved_fraction,
        robots={robot: results[robot] for robot in participants},
    )


def after_merge(
    plan: FleetPlan, number: int, base: Tensors | None, merged: Tensors, state: ServerState
) -> tuple[Tensors, ServerState, float]:
    """Takes the server's step, if it has an optimizer, and measures the result.

    Args:
        plan: The fleet.
        number: Number of the round.
        base: Weights from which all robots began; None if there are no such.
        merged: Merged weights.
        state: State of the server's optimizer after the round before.

    Returns:
        Weights, the state, and the loss on the held-out episodes.

    Raises:
        UnsoundMergeError: The weights are not usable, see `soundness.require_sound`.
        DivergedError: Their loss is not finite.
    """
    made_by = plan.config.method
    if plan.config.server is not None and base is not None:
        merged, state = server_step(plan.config.server, base, merged, state)
        made_by += f" with a step of {plan.config.server.optimizer}"
    require_sound(merged, plan.blueprint.create_empty().state_dict(), made_by)
    merged = recompute_statistics(plan, merged)
    loss = plan.held_out_loss(merged)
    if not math.isfinite(loss):
        rate = plan.config.training.learning_rate
        raise DivergedError(
            f"The merged policy of round {number} has the loss {loss:g} on the held-out episodes. "
            f"Give a smaller learning rate than {rate:g}."
        )
    return merged, state, loss


def training_request(plan: FleetPlan, number: int, weights: Tensors | None) -> LocalUpdateRequest:
    """Returns the request to train in a round.

    Args:
        plan: The fleet.
        number: Number of the round, from 1.
        weights: Merged weights of the round before; None in the first.
    """
    epochs = plan.config.epochs_per_round
    return LocalUpdateRequest(number, (number - 1) * epochs, epochs, weights)


def merge_problem(
    plan: FleetPlan,
    number: int,
    models: Sequence[Tensors],
    steps: Sequence[int],
    data_holders: Sequence[DataHolder],
    base: Tensors | None = None,
) -> MergeProblem:
    """Returns the problem that a merging method solves in a round.

    Args:
        plan: The fleet.
        number: Number of the round, from 1.
        models: Weights to be merged.
        steps: Number of steps that each was trained on, the averaging weights.
        data_holders: Data holder of each model.
        base: Weights from which all of them were trained in this round, if there are such.
    """
    return MergeProblem(
        plan.blueprint.symmetry(),
        models,
        averaging_weights=steps,
        data_holders=data_holders,
        shared_data_holder=local_data_holder(
            plan.blueprint, plan.held_out_trajectories, plan.config.training.batch_size
        ),
        affine_maps=plan.affine_maps,
        seed=plan.merge_seed(number),
        base=base,
    )


def recompute_statistics(plan: FleetPlan, weights: Tensors) -> Tensors:
    """Returns averaged weights with BatchNorm statistics of the held-out episodes."""
    trajectories = plan.held_out_trajectories
    order = trajectories.order(plan.config.training.batch_size, None)
    batches = (trajectories.batch(items).observations for items in order)
    return recompute(plan.blueprint.create(), weights, batches)


def _local_updates(
    plan: FleetPlan,
    transport: Transport,
    number: int,
    weights: Tensors | None,
    participants: Sequence[int],
    stored_replies: Mapping[int, bytes],
    store_reply: Callable[[int, bytes], None],
) -> dict[int, RobotResult]:
    """Lets the participants train, and returns their results before the merge."""
    request = encode_request(training_request(plan, number, weights))
    expected = plan.blueprint.create().state_dict()
    results: dict[int, RobotResult] = {}
    for robot in participants:
        if robot in stored_replies:
            reply = stored_replies[robot]
            update = decode_update(reply, number, expected)
            results[robot] = RobotResult(update, None, Traffic(1, len(request), len(reply)))
    requests = {robot: request for robot in participants if robot not in stored_replies}
    missing, closing = plan.wanted - len(results), plan.config.closing
    if missing <= 0:
        requests = {}
    with contextlib.closing(transport.exchange(requests, deadline_s=closing.deadline)) as replies:
        for robot, reply in replies:
            if isinstance(reply, LostRobot):
                results[robot] = RobotResult(None, reply.reason, Traffic(1, len(request), 0))
                continue
            traffic = Traffic(1, len(request), len(reply))
            try:
                update = decode_update(reply, number, expected)
            except MessageError as error:
                transport.end(robot)
                results[robot] = RobotResult(None, str(error), traffic)
                continue
            store_reply(robot, reply)
            results[robot] = RobotResult(update, None, traffic)
            missing -= 1
            if missing == 0:
                break
    for robot in participants:
        if robot not in results:
            results[robot] = RobotResult(None, LATE, Traffic(1, len(request), 0))
    if merged := len(_merged_updates(results)):  # otherwise, the merge says why
        closing.require_quorum(number, merged, plan.wanted)
    return results


def _merge(
    plan: FleetPlan,
    transport: Transport,
    number: int,
    results: Mapping[int, RobotResult],
    base: Tensors | None,
) -> tuple[MergeResult, Mapping[int, RobotResult]]:
    """Merges the local updates; if a robot is lost meanwhile, merges the others from the beginning.

    Returns:
        The merge, and the results with the traffic of the merge, and robots lost during it.
    """
    while updates := _merged_updates(results):
        holders = [CountingDataHolder(plan, transport, robot) for robot in updates]
        models = [update.weights for update in updates.values()]
        steps = [update.steps for update in updates.values()]
        problem = merge_problem(plan, number, models, steps, holders, base)
        options = plan.config.method_options()
        try:
            merge = registry.merge(plan.config.method, problem, **options)
        except LostRobotError as error:
            results = _with_traffic(results, holders)
            results[error.robot] = replace(results[error.robot], left_out=error.reason)
        else:
            return merge, _with_traffic(results, holders)
    reasons = "; ".join(
        f"robot {robot}: {result.left_out}" for robot, result in sorted(results.items())
    )
    raise TrainingError(f"In round {number}, no robot is left to merge. {reasons}")


def _merged_updates(results: Mapping[int, RobotResult]) -> dict[int, LocalUpdate]:
    """Returns the local updates that are not left out, by robot number, ascending."""
    return {
        robot: update
        for robot, result in sorted(results.items())
        if (update := result.merged_update) is not None
    }


def _with_traffic(
    results: Mapping[int, RobotResult], holders: Sequence[CountingDataHolder]
) -> dict[int, RobotResult]:
    """Returns results with the traffic of data holders added."""
    traffic = {holder.robot: holder.traffic for holder in holders}
    return {
        robot: replace(result, traffic=result.traffic + traffic.get(robot, Traffic()))
        for robot, result in results.items()
    }
