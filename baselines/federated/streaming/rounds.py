"""One streaming round: robots align at home, and the server adds up their changes as they come.

The server holds the reference and one sum, whatever the number of robots. Sums are of integers
(`sums`), so that the order in which answers arrive does not matter to the last bit.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleet_tools.baselines.federated.messages import (
    LocalUpdate,
    decode_update,
    encode_request,
)
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.robot_summary import RobotSummary
from fleet_tools.baselines.federated.rounds import after_merge, training_request
from fleet_tools.baselines.federated.server_optimizer import ServerState
from fleet_tools.baselines.federated.streaming.config import StreamingConfig
from fleet_tools.baselines.federated.streaming.exchange import Messages, Summaries, exchange
from fleet_tools.baselines.federated.streaming.messages import (
    ChangeRequest,
    decode_rounded,
    decode_vector,
    encode_change_request,
)
from fleet_tools.baselines.federated.streaming.partial import EXCHANGES, Partial
from fleet_tools.baselines.federated.streaming.sums import FixedPointSum
from fleet_tools.baselines.federated.streaming.vectors import displaced, sizes
from fleet_tools.baselines.federated.transport import Transport
from fleet_tools.baselines.training.state import Tensors, TrainingError

STORE_EVERY_S = 20.0
"""Time between two copies of an exchange in progress on disk."""

Store = Callable[[Partial], None]


@dataclass(frozen=True, eq=False)
class StreamedRound:
    """Result of a streaming round.

    Attributes:
        number: Number of the round, from 1.
        weights: Merged weights, after the server's step if it has an optimizer.
        server_state: State of the server's optimizer.
        loss: Loss of the merged policy on the held-out episodes.
        robots: Summaries of the robots that were asked, by robot number.
        came_late: Number of answers to former rounds that came meanwhile.
    """

    number: int
    weights: Tensors
    server_state: ServerState
    loss: float
    robots: Mapping[int, RobotSummary]
    came_late: int


def run_streaming_round(
    plan: FleetPlan,
    transport: Transport,
    number: int,
    weights: Tensors | None,
    *,
    server_state: ServerState | None = None,
    partial: Partial | None = None,
    store: Store = lambda partial: None,
) -> StreamedRound:
    """Runs one round.

    Args:
        plan: The fleet.
        transport: Transport to its robots.
        number: Number of the round, from 1.
        weights: Merged weights of the round before; None in the first.
        server_state: State of the server's optimizer after the round before; None in the first.
        partial: A stored exchange, which is continued if it is one of this round.
        store: Called now and then with the exchange in progress.

    Raises:
        TrainingError: Too few robots answered.
        UnsoundMergeError, DivergedError: The merged weights or their loss are not usable.
    """
    config, came_late = _streaming(plan), len(transport.late())
    training = training_request(plan, number, weights)
    base = plan.first_base() if weights is None else weights
    robots, wanted = plan.participants(number), plan.wanted
    begin = number * EXCHANGES
    if partial is not None and partial.session // EXCHANGES == number:
        begin, summaries, reference = partial.session, dict(partial.robots), partial.reference
    else:
        partial, summaries = None, {}
        reference = base or _policy_of_one(plan, transport, number, robots, summaries)
    passes = config.passes if base is None else 1
    for session in range(begin, number * EXCHANGES + passes):
        # Where there is a base, training begins there, and it need not be sent as well.
        sent = reference if base is None else None
        message = encode_change_request(ChangeRequest(training, sent, session))
        if partial is None:
            zero = FixedPointSum.zero(sum(sizes(reference)))
            partial = Partial(session, reference, zero, summaries, tuple(robots))
        else:
            partial = replace(partial, robots=summaries)
        total = _summed(plan, transport, number, message, partial, wanted, store)
        partial = None
        left_out = {robot: each.left_out for robot, each in summaries.items()}
        plan.config.closing.require_quorum(number, total.count, plan.wanted, left_out)
        reference = displaced(reference, total.mean())
        robots = [robot for robot, each in summaries.items() if each.left_out is None]
        wanted = len(robots)
    merged, after, loss = after_merge(plan, number, base, reference, server_state or {})
    ordered = dict(sorted(summaries.items()))
    return StreamedRound(number, merged, after, loss, ordered, came_late)


def _summed(
    plan: FleetPlan,
    transport: Transport,
    number: int,
    message: bytes,
    begin: Partial,
    wanted: int,
    store: Store,
) -> FixedPointSum:
    """Returns the sum of robots' changes; what is exchanged is added to `begin.robots`."""
    config, counts = _streaming(plan), sizes(begin.reference)
    total, waiting = begin.total, set(begin.waiting)
    stored = time.monotonic()

    def take(robot: int, answer: bytes) -> tuple[int, float]:
        nonlocal total
        if config.bits is None:
            change = decode_vector(answer, number, sum(counts))
        else:
            change = decode_rounded(answer, number, counts, config.bits)
        total = total.plus(change.vector, change.steps)
        waiting.discard(robot)
        return change.steps, change.loss

    def after_answer() -> None:
        nonlocal stored
        if time.monotonic() - stored >= STORE_EVERY_S:
            store(Partial(begin.session, begin.reference, total, begin.robots, tuple(waiting)))
            stored = time.monotonic()

    if wanted > total.count:
        exchange(
            transport,
            Messages(sorted(waiting), lambda robot: message),
            take,
            begin.robots,
            wanted=wanted - total.count,
            deadline=plan.config.closing.deadline,
            after_answer=after_answer,
        )
    return total


def _policy_of_one(
    plan: FleetPlan,
    transport: Transport,
    number: int,
    robots: Sequence[int],
    summaries: Summaries,
) -> Tensors:
    """Returns the policy of the first robot that answers, with which the others align theirs.

    Raises:
        TrainingError: None answers.
    """
    request = encode_request(training_request(plan, number, None))
    expected = plan.blueprint.create().state_dict()
    for robot in robots:
        found: list[LocalUpdate] = []

        def take(robot: int, answer: bytes, found: list[LocalUpdate] = found) -> tuple[int, float]:
            found.append(decode_update(answer, number, expected))
            return found[0].steps, found[0].loss

        one = Messages([robot], lambda robot: request)
        limit = plan.config.closing.deadline
        if exchange(transport, one, take, summaries, wanted=1, deadline=limit):
            return found[0].weights
    raise TrainingError(f"In round {number}, none of {len(robots)} robots answered.")


def _streaming(plan: FleetPlan) -> StreamingConfig:
    assert plan.config.streaming is not None
    return plan.config.streaming
