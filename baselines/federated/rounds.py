"""One round of a fleet: robots train, their answers are aggregated, and the result is measured.

The server keeps answers and merges them by a method of the registry. In a streaming fleet, robots
align at home, and the server adds up their changes. It then holds only the reference and one sum,
for any number of robots.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fleet_merging.errors import UnsoundMergeError
from fleet_merging.methods import registry
from fleet_merging.methods.options import keyword_arguments
from fleet_merging.modules import recompute
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.queries.data_holder import DataHolder
from fleet_merging.queries.traffic import DataHolderError
from fleet_merging.queries.validity import is_finite, outlier
from fleet_merging.soundness import require_sound
from fleet_tools.baselines.federated.aggregation import (
    ChangeSum,
    FixedPointSum,
    Updates,
)
from fleet_tools.baselines.federated.compact import Known
from fleet_tools.baselines.federated.messages import ChangeRequest, LocalUpdate, TrainRequest
from fleet_tools.baselines.federated.partial import EXCHANGES, NoStore, Partial, RoundStore
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.robot import first_weights
from fleet_tools.baselines.federated.round_messages import (
    LATE,
    ClientSummary,
    RobotDataHolder,
    RobotGroup,
    RoundMessages,
)
from fleet_tools.baselines.federated.server_optimizer import ServerState, server_step
from fleet_tools.baselines.federated.transport import Transport
from fleet_tools.baselines.federated.vectors import displaced, sizes
from fleet_tools.baselines.policies.merged_checkpoints import checkpoint_problem
from fleet_tools.baselines.training.state import DivergedError, Tensors, TrainingError

STORE_EVERY_S = 20.0
"""Time between two copies of a sum in progress on disk."""


@dataclass(frozen=True, eq=False)
class RoundResult:
    """Result of a round.

    Attributes:
        number: Number of the round, from 1.
        weights: Merged weights, after the server's step if it has an optimizer.
        server_state: State of the server's optimizer.
        loss: Loss of the merged policy on the held-out episodes.
        moved_fraction: Fraction of the units that alignment moved, see
            `PermutationGroup.moved_fraction`; None for soft permutations or streaming fleets.
        robots: Traffic of each robot that was asked, by robot number.
        robot_weights: Weights that were merged, by robot number; none in a streaming fleet.
        came_late: Number of late answers to former rounds.
    """

    number: int
    weights: Tensors
    server_state: ServerState
    loss: float
    moved_fraction: float | None
    robots: Mapping[int, ClientSummary]
    robot_weights: Mapping[int, Tensors] = field(default_factory=dict)
    came_late: int = 0


def run_round(
    plan: FleetPlan,
    transport: Transport,
    number: int,
    weights: Tensors | None,
    store: RoundStore | None = None,
    server_state: ServerState | None = None,
    own: Mapping[int, Tensors] | None = None,
) -> RoundResult:
    """Runs one round.

    Args:
        plan: The fleet.
        transport: Transport to its robots.
        number: Number of the round, from 1.
        weights: Merged weights of the round before; None in the first.
        store: Stores answers, to resume an interrupted round; None stores nothing.
        server_state: State of the server's optimizer after the round before; None in the first.
        own: Initial weights of single robots in place of the common ones, by robot number.

    Raises:
        TrainingError: All robots are lost, or too few answered.
        UnsoundMergeError, DivergedError: The merged weights or their loss are not usable.
        FleetToolsError: An error of the merging method.
    """
    came_late, store = len(transport.late()), store or NoStore()
    base = plan.first_base() if weights is None else weights
    epochs = plan.config.epochs_per_round
    request = TrainRequest(number, (number - 1) * epochs, epochs, weights)
    if plan.config.streaming is not None:
        messages, merged = _summed(plan, transport, request, base, store)
        moved, robot_weights = None, {}
    else:
        trainings = 1 if own is None else number
        messages = messages_of(plan, transport, base=base, trainings=trainings)
        updates = _updates(plan, messages, request, store, own or {})
        merge = _merge(plan, messages, number, updates, base)
        merged = merge.state
        moved = plan.symmetry.group(merged).moved_fraction(merge.permutations)
        robot_weights = {robot: updates[robot].weights for robot in messages.merged()}
    state, after, loss = after_merge(plan, number, base, merged, server_state or {})
    robots = dict(sorted(messages.robots.items()))
    return RoundResult(number, state, after, loss, moved, robots, robot_weights, came_late)


def messages_of(
    plan: FleetPlan,
    transport: Transport,
    robots: Mapping[int, ClientSummary] | None = None,
    base: Tensors | None = None,
    trainings: int = 1,
) -> RoundMessages:
    """Returns the messages of a round, see `RoundMessages`.

    Args:
        plan: The fleet.
        transport: Transport to its robots.
        robots: See `RoundMessages`.
        base: Weights from which robots have trained.
        trainings: Number of rounds since then, at most.
    """
    known = _known(plan, base, trainings)
    return RoundMessages(transport, robots, plan.config.uploads, plan.most_bytes, known)


def _known(plan: FleetPlan, base: Tensors | None, trainings: int) -> Known | None:
    """Returns the shared weights of robots with a backbone and the server.

    Each training adds changes of the adapters' rank.
    """
    backbone = plan.config.backbone
    if backbone is None or base is None:
        return None
    return Known(base, backbone.rank * trainings if backbone.tuned == "adapters" else None)


def _updates(
    plan: FleetPlan,
    messages: RoundMessages,
    request: TrainRequest,
    store: RoundStore,
    own: Mapping[int, Tensors],
) -> dict[int, LocalUpdate]:
    """Lets the participants train, and returns their updates."""
    closing, participants = plan.config.closing, plan.participants(request.round)
    stored = {
        robot: reply
        for robot, reply in store.replies(request.round).items()
        if robot in participants
    }
    requests = {robot: _localized(plan, request, robot, own) for robot in participants}
    for robot, reply in stored.items():
        messages.record(robot, requests[robot], reply)
    updates = Updates(request.round, plan.form, store.save_reply, plan.limits)
    missing = plan.wanted(request.round) - len(stored)
    waiting = [robot for robot in participants if robot not in stored] if missing > 0 else []
    limit = closing.deadline
    asked = {robot: requests[robot] for robot in waiting}
    messages.ask(asked, updates, wanted=missing, deadline_s=limit)
    for robot in set(participants).difference(stored, waiting):  # enough had answered before
        messages.record(robot, requests[robot], None, LATE)
    found = updates.by_robot | stored
    sizes = {robot: plan.sizes_of(found[robot].weights) for robot in messages.merged()}
    while (other := outlier(list(sizes.values()))) is not None:
        robot = list(sizes)[other[0]]
        messages.leave_out(robot, other[1])
        del sizes[robot]
    return found


def _localized(
    plan: FleetPlan, request: TrainRequest, robot: int, own: Mapping[int, Tensors]
) -> TrainRequest:
    """Returns the request to a robot, with its epochs and perhaps its own initial weights."""
    epoch, epochs = plan.epochs(robot, request.round)
    weights = own.get(robot, request.weights)
    return replace(request, epoch=epoch, epochs=epochs, weights=weights)


def _merge(
    plan: FleetPlan,
    messages: RoundMessages,
    number: int,
    updates: Mapping[int, LocalUpdate],
    base: Tensors | None,
) -> MergeResult:
    """Merges the updates of the robots that are not left out."""
    method, options = plan.config.merging_in(number)

    def merge(robots: Sequence[int], holders: Sequence[DataHolder]) -> MergeResult:
        own = [updates[robot] for robot in robots]
        weights, steps = [each.weights for each in own], [each.steps for each in own]
        problem = merge_problem(plan, number, weights, steps, holders, base)
        return registry.merge(method, problem, **options)

    return merge_remaining(plan, messages, number, messages.merged(), merge)


def combine(
    plan: FleetPlan,
    messages: RoundMessages,
    number: int,
    networks: Mapping[int, Tensors],
    steps: Mapping[int, int],
    group: RobotGroup | None = None,
) -> MergeResult:
    """Returns the last method's result for the robots that are not left out meanwhile.

    Args:
        plan: The fleet.
        messages: The messages to its robots.
        number: Number of the round.
        networks: The robots' weights, by robot number.
        steps: Numbers of steps of their data.
        group: See `merge_remaining`.

    Raises:
        FleetToolsError: See `merge_remaining`.
    """
    method = plan.config.last_method
    assert method is not None

    def merge(robots: Sequence[int], holders: Sequence[DataHolder]) -> MergeResult:
        problem = checkpoint_problem(
            plan.blueprint,
            [networks[robot] for robot in robots],
            holders,
            plan.shared_data_holder,
            averaging_weights=[steps[robot] for robot in robots],
            base=None if plan.config.life is None else plan.first_base(),
            seed=plan.merge_seed(number),
            method=method,
        )
        options = keyword_arguments(method, plan.config.last_options)
        return registry.merge(method, problem, **options)

    return merge_remaining(plan, messages, number, list(networks), merge, group)


def merge_remaining(
    plan: FleetPlan,
    messages: RoundMessages,
    number: int,
    robots: Sequence[int],
    merge: Callable[[Sequence[int], Sequence[DataHolder]], MergeResult],
    group: RobotGroup | None = None,
) -> MergeResult:
    """Merges robots; if one is left out meanwhile, merges the others from the beginning.

    Args:
        plan: The fleet.
        messages: The messages of the round.
        number: Number of the round.
        robots: Numbers of the robots.
        merge: merge(robots, data_holders): merges some of them.
        group: Sends the queries to robots; None uses messages alone.

    Raises:
        TrainingError: No robot is left, or fewer than the quorum.
        UnsoundMergeError: A model in a query is not usable on the server's own data either.
        FleetToolsError: An error of the merging method.
    """
    group = group or RobotGroup(messages)
    while robots := [robot for robot in robots if messages.left_out(robot) is None]:
        wanted, reasons = plan.wanted(number), _reasons(messages)
        plan.config.closing.require_quorum(number, len(robots), wanted, reasons)
        try:
            return merge(robots, robot_data_holders(plan, group, robots))
        except DataHolderError as error:
            _leave_out(plan, messages, group, error)
    reasons = "; ".join(f"robot {robot}: {why}" for robot, why in _reasons(messages).items())
    raise TrainingError(f"In round {number}, every robot was excluded. {reasons}")


def _reasons(messages: RoundMessages) -> dict[int, str | None]:
    return {robot: each.left_out for robot, each in sorted(messages.robots.items())}


def _leave_out(
    plan: FleetPlan, messages: RoundMessages, group: RobotGroup, error: DataHolderError
) -> None:
    """Leaves out the robot of an error, unless the server or the query is at fault."""
    holder, query = error.holder, error.query
    if not isinstance(holder, RobotDataHolder):
        raise error
    if query is not None and not is_finite(plan.shared_data_holder.answer(query)):
        raise UnsoundMergeError(
            f"Robot {holder.robot} got a query about a merged model, and its answer is not finite; "
            "the server's own episodes give no finite answer, either. The merged model has "
            "diverged. Give a smaller learning rate, or a robust rule."
        )
    group.refused(holder.robot)
    messages.leave_out(holder.robot, str(error))


def robot_data_holders(
    plan: FleetPlan, group: RobotGroup, robots: Sequence[int]
) -> list[RobotDataHolder]:
    """Returns robots as data holders of a merge, which answer at the same time."""
    return [RobotDataHolder(robot, group, plan.limits(robot)) for robot in robots]


def merge_problem(
    plan: FleetPlan,
    number: int,
    models: Sequence[Tensors],
    steps: Sequence[int],
    data_holders: Sequence[DataHolder],
    base: Tensors | None = None,
    **fields: Any,
) -> MergeProblem:
    """Returns the problem that a merging method solves in a round.

    Args:
        plan: The fleet.
        number: Number of the round, from 1.
        models: Weights to be merged.
        steps: Number of training steps of each, the averaging weights.
        data_holders: Data holder of each model.
        base: Common weights before this round; None if there are none.
        fields: Other fields of the problem.
    """
    return MergeProblem(
        plan.symmetry,
        models,
        averaging_weights=steps,
        data_holders=data_holders,
        shared_data_holder=plan.shared_data_holder,
        affine_maps=plan.affine_maps,
        seed=plan.merge_seed(number),
        base=base,
        **fields,
    )


def _summed(
    plan: FleetPlan,
    transport: Transport,
    training: TrainRequest,
    base: Tensors | None,
    store: RoundStore,
) -> tuple[RoundMessages, Tensors]:
    """Lets robots train and align at home, and returns the reference with their mean change."""
    config, number = plan.config.streaming, training.round
    assert config is not None
    robots, wanted = plan.participants(number), plan.wanted(number)
    partial = store.partial()
    if partial is not None and partial.session // EXCHANGES == number:
        begin, reference = partial.session, partial.reference
        messages = RoundMessages(transport, partial.robots)
    else:
        partial, begin, messages = None, number * EXCHANGES, RoundMessages(transport)
        reference = base or _policy_of_one(plan, messages, training, robots)
    passes = config.passes if base is None else 1
    for session in range(begin, number * EXCHANGES + passes):
        # With a base, training begins there, and the message need not repeat it.
        request = ChangeRequest(training, reference if base is None else None, session)
        zero = FixedPointSum.zero(sum(sizes(reference)))
        begun = partial or Partial(session, reference, zero, {}, tuple(robots))
        changes = _changes(plan, messages, request, begun, wanted, store)
        partial = None
        left_out = {robot: each.left_out for robot, each in messages.robots.items()}
        wished = plan.wanted(number)
        plan.config.closing.require_quorum(number, changes.total.count, wished, left_out)
        reference = displaced(reference, changes.mean())
        robots = messages.merged()
        wanted = len(robots)
    return messages, reference


def _changes(
    plan: FleetPlan,
    messages: RoundMessages,
    request: ChangeRequest,
    begun: Partial,
    wanted: int,
    store: RoundStore,
) -> ChangeSum:
    """Returns the robots' changes; their sum is stored now and then."""
    config, stored = plan.config.streaming, time.monotonic()
    assert config is not None
    changes = ChangeSum(
        request.training.round, begun.reference, config.bits, begun.total, plan.limits
    )

    def after_answer() -> None:
        nonlocal stored
        if time.monotonic() - stored >= STORE_EVERY_S:
            waiting = tuple(set(begun.waiting) - changes.robots)
            robots = dict(messages.robots)
            store.save_partial(replace(begun, total=changes.total, robots=robots, waiting=waiting))
            stored = time.monotonic()

    if wanted > begun.total.count:
        messages.ask(
            dict.fromkeys(sorted(begun.waiting), request),
            changes,
            wanted=wanted - begun.total.count,
            deadline_s=plan.config.closing.deadline,
            after_answer=after_answer,
        )
    return changes


def _policy_of_one(
    plan: FleetPlan, messages: RoundMessages, training: TrainRequest, robots: Sequence[int]
) -> Tensors:
    """Returns the policy of the first robot that answers, as reference for the others.

    Raises:
        TrainingError: None answers.
    """
    found = Updates(training.round, plan.form, limits=plan.limits)
    limit = plan.config.closing.deadline
    first = first_weights(plan.assignments[0])
    for robot in robots:
        if messages.ask({robot: training}, found, deadline_s=limit):
            weights = found.by_robot[robot].weights
            if (other := outlier([plan.sizes_of(first), plan.sizes_of(weights)])) is None:
                return weights
            messages.leave_out(robot, other[1])
    raise TrainingError(f"In round {training.round}, none of {len(robots)} robots answered.")


def after_merge(
    plan: FleetPlan, number: int, base: Tensors | None, merged: Tensors, state: ServerState
) -> tuple[Tensors, ServerState, float]:
    """Takes the server's step, if it has an optimizer, and measures the result.

    Args:
        plan: The fleet.
        number: Number of the round.
        base: Common initial weights of the round; None if there are none.
        merged: Merged weights.
        state: State of the server's optimizer after the round before.

    Returns:
        Weights, the state, and the loss on the held-out episodes.

    Raises:
        UnsoundMergeError: The weights are not usable, see `soundness.require_sound`.
        DivergedError: Their loss is not finite.
    """
    made_by, _ = plan.config.merging_in(number)
    if plan.config.server is not None and base is not None:
        merged, state = server_step(plan.config.server, base, merged, state)
        made_by += f" with a step of {plan.config.server.optimizer}"
    require_sound(merged, plan.form, made_by)
    merged = recompute_statistics(plan, merged)
    loss = plan.held_out_loss(merged)
    if not math.isfinite(loss):
        rate = plan.config.training.learning_rate
        raise DivergedError(
            f"The merged policy of round {number} has the loss {loss:g} on the held-out episodes. "
            f"Give a smaller learning rate than {rate:g}."
        )
    return merged, state, loss


def recompute_statistics(plan: FleetPlan, weights: Tensors) -> Tensors:
    """Returns averaged weights with BatchNorm statistics of the server's episodes, if any."""
    if not plan.has_statistics:
        return weights
    trajectories = plan.server_trajectories
    order = trajectories.order(plan.config.training.batch_size, None)
    batches = (trajectories.batch(items).observations for items in order)
    return recompute(plan.blueprint.create(), weights, batches)
