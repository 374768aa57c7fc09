"""One round of a fleet: robots train apart, what they learned is merged, the result is judged."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from fleet_tools.baselines.federated.messages import Reply, Request, decode_reply, encode_request
from fleet_tools.baselines.federated.plan import Plan
from fleet_tools.baselines.federated.robot import questioned
from fleet_tools.baselines.federated.transport import Hosts, Lost
from fleet_tools.baselines.merging.batch_norm import recompute
from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.methods import registry
from fleet_tools.baselines.merging.problem import Fleet, Merged
from fleet_tools.baselines.merging.queries.data_holder import Robot, Traffic
from fleet_tools.baselines.merging.queries.wire import decode_answer, decode_question
from fleet_tools.baselines.training.errors import DivergedError, TrainingError
from fleet_tools.baselines.training.loop import validate
from fleet_tools.baselines.training.state import Tensors
from fleet_tools.baselines.training.trajectories import Trajectories


@dataclass(frozen=True, eq=False)
class Part:
    """What came of a robot in a round.

    Attributes:
        reply: What it had learned; None if it was left out before it said so.
        left_out: Why it was not merged; None if it was.
        traffic: What crossed to it and from it.
    """

    reply: Reply | None = None
    left_out: str | None = None
    traffic: Traffic = field(default_factory=Traffic)


@dataclass(frozen=True, eq=False)
class Round:
    """What came of a round.

    Attributes:
        number: From 1.
        weights: The merged ones.
        loss: Theirs on the driver's episodes.
        moved: The share of units that alignment moved (`PermutationGroup.moved`); None where it
            averaged softly.
        parts: Of all participants, by their numbers.
    """

    number: int
    weights: Tensors
    loss: float
    moved: float | None
    parts: Mapping[int, Part]


def play(
    plan: Plan,
    held: Trajectories,
    hosts: Hosts,
    number: int,
    weights: Tensors | None,
    kept: Mapping[int, bytes],
    keep: Callable[[int, bytes], None] = lambda robot, answer: None,
) -> Round:
    """Plays one round.

    Args:
        plan: The fleet.
        held: The driver's own episodes.
        hosts: Where its robots run.
        number: Of the round, from 1.
        weights: Merged in the round before; None in the first.
        kept: Replies that are already there, by robot, as `keep` was given them.
        keep: Is given every reply that is as it should be.

    Raises:
        TrainingError: No robot is left to be merged.
        DivergedError: The merged weights, or their loss, are not finite.
        FleetToolsError: As the method says.
    """
    per_round = plan.config.epochs_per_round
    message = encode_request(Request(number, (number - 1) * per_round, per_round, weights))
    network = plan.blueprint.create()
    parts: dict[int, Part] = {}

    def after(robot: int, answer: bytes | Lost) -> None:
        traffic = Traffic(1, len(message), 0 if isinstance(answer, Lost) else len(answer))
        if isinstance(answer, Lost):
            parts[robot] = Part(None, answer.reason, traffic)
            return
        try:
            reply = decode_reply(answer, number, network.state_dict())
        except MessageError as error:
            hosts.end(robot)
            parts[robot] = Part(None, str(error), traffic)
            return
        if robot not in kept:
            keep(robot, answer)
        parts[robot] = Part(reply, None, traffic)

    participants = plan.participants(number)
    for robot in participants:
        if robot in kept:
            after(robot, kept[robot])
    for robot, answer in hosts.answers({k: message for k in participants if k not in kept}):
        after(robot, answer)

    came = _merge(plan, held, hosts, number, parts)
    merged = with_statistics(plan, held, came.state)
    loss = validate(plan.blueprint, held, plan.config.training, merged)
    if not math.isfinite(loss) or not all(map(_finite, merged.values())):
        rate = plan.config.training.learning_rate
        raise DivergedError(
            f"In round {number}, robots came to weights whose merge has the loss {loss:g} on the "
            f"driver's episodes. Give a smaller learning rate than {rate:g}."
        )
    moved = plan.blueprint.symmetry().group(merged).moved(came.permutations)
    return Round(number, merged, loss, moved, {robot: parts[robot] for robot in participants})


def fleet_of(
    plan: Plan,
    held: Trajectories,
    number: int,
    weights: Sequence[Tensors],
    steps: Sequence[int],
    robots: Sequence[Robot],
) -> Fleet:
    """Returns what a method is given in a round.

    Args:
        plan, held, number: As `play` takes them.
        weights: Of all that are to be merged.
        steps: That each was learned from: its share.
        robots: Whom to ask about each one's own data.
    """
    shared = questioned(plan.blueprint, held, _batch_size(plan))
    seed = plan.merge_seed(number)
    return Fleet(plan.blueprint.symmetry(), weights, steps, robots, shared, seed=seed)


def with_statistics(plan: Plan, held: Trajectories, weights: Tensors) -> Tensors:
    """Returns averaged weights, with statistics of BatchNorm from the driver's episodes."""
    batches = (held.batch(items).observations for items in held.order(_batch_size(plan), None))
    return recompute(plan.blueprint.create(), weights, batches)


def _merge(
    plan: Plan, held: Trajectories, hosts: Hosts, number: int, parts: dict[int, Part]
) -> Merged:
    """Merges what is there; who is lost on the way is left out, and the others merge anew."""
    while present := [robot for robot in sorted(parts) if parts[robot].left_out is None]:
        lines = [_Line(hosts, robot) for robot in present]
        replies = [parts[robot].reply for robot in present]
        weights, steps = [each.weights for each in replies], [each.steps for each in replies]
        fleet = fleet_of(plan, held, number, weights, steps, lines)
        lost = None
        try:
            return registry.merge(plan.config.method, fleet, **plan.config.method_options())
        except _LostError as error:
            lost = error
        finally:
            for line in lines:
                part = parts[line.robot]
                left_out = lost.reason if lost and lost.robot == line.robot else None
                parts[line.robot] = Part(part.reply, left_out, part.traffic + line.traffic)
    said = "; ".join(f"robot {robot}: {part.left_out}" for robot, part in sorted(parts.items()))
    raise TrainingError(f"In round {number}, no robot is left to be merged. {said}")


class _LostError(MessageError):
    """A robot is lost while others are aligned."""

    def __init__(self, robot: int, reason: str) -> None:
        super().__init__(f"Robot {robot} is lost: {reason}")
        self.robot, self.reason = robot, reason


class _Line:
    """A `merging.robots.Robot` for one merge: it counts what crosses, and says who is lost."""

    def __init__(self, hosts: Hosts, robot: int) -> None:
        self.robot, self.traffic = robot, Traffic()
        self._hosts = hosts

    def answer(self, message: bytes) -> bytes:
        ((_, answer),) = self._hosts.answers({self.robot: message})
        lost = isinstance(answer, Lost)
        self.traffic += Traffic(1, len(message), 0 if lost else len(answer))
        if lost:
            raise _LostError(self.robot, answer.reason)
        try:
            decode_answer(answer, decode_question(message))
        except MessageError as error:
            self._hosts.end(self.robot)
            raise _LostError(self.robot, str(error)) from None
        return answer


def _finite(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


def _batch_size(plan: Plan) -> int:
    return plan.config.training.batch_size
