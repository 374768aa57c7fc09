"""Progress of a fleet, summaries of its rounds, and checks of stored progress."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch

from fleet_merging.buffers import learned_tensors
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.round_messages import LATE, ClientSummary
from fleet_tools.baselines.federated.rounds import RoundResult
from fleet_tools.baselines.federated.server_optimizer import ServerState, state_names
from fleet_tools.baselines.policies.checkpoint import CheckpointError, require_weights
from fleet_tools.baselines.training.reports import Point, success_values
from fleet_tools.baselines.training.rollouts import TaskSuccesses
from fleet_tools.baselines.training.state import Tensors
from fleet_tools.config.values import Value


class Tally(Value):
    """Numbers of robots in a streaming round.

    Attributes:
        asked: Robots that were asked.
        merged: Robots with merged changes.
        failed: Robots that were lost, or sent invalid answers.
        not_awaited: Robots that had not answered when the round closed.
        came_late: Late answers that came from robots of former rounds.
        steps: Number of steps in the data of the merged robots.
        loss: Mean of their losses.
        messages: Number of messages to robots.
        downloaded_bytes, uploaded_bytes: Size of messages and answers.
    """

    asked: int
    merged: int
    failed: int
    not_awaited: int
    came_late: int
    steps: int
    loss: float | None
    messages: int
    downloaded_bytes: int
    uploaded_bytes: int


class RoundSummary(Value):
    """Summary of a round, a line of `rounds.jsonl`.

    Attributes:
        round: Number of the round, from 1.
        epochs: Number of epochs so far, of a robot that took part in every round.
        robots: Summaries of the participants; of a streaming round none, see `tally`.
        bytes_so_far: Size of all messages to and from robots since the first round.
        loss: Loss of the merged policy on the held-out episodes.
        moved_fraction: Fraction of the units that alignment moved; None if its permutations are
            soft.
        rollouts: Successes of the merged policy by task; None if it was not evaluated.
        seconds: Wall time of the round, since its last start.
        tally: Numbers of the participants of a streaming round; their summaries have their own
            file. None for other rounds.
    """

    round: int
    epochs: int
    robots: tuple[ClientSummary, ...]
    bytes_so_far: int
    loss: float
    moved_fraction: float | None
    rollouts: dict[str, TaskSuccesses] | None
    seconds: float
    tally: Tally | None = None


@dataclass(frozen=True, eq=False)
class FleetProgress:
    """Progress of a fleet after its first round or a later one.

    Attributes:
        rounds: Summaries of all rounds so far, at least one.
        weights: Merged weights of the last round.
        robot_weights: Weights that were merged in it, by robot number.
        server_state: State of the server's optimizer after it.
    """

    rounds: tuple[RoundSummary, ...]
    weights: Tensors
    robot_weights: Mapping[int, Tensors]
    server_state: ServerState = field(default_factory=dict)

    @property
    def robot_steps(self) -> dict[int, int]:
        """Numbers of steps in the data of the robots of `robot_weights`, in the last round."""
        steps = {each.robot: each.steps or 0 for each in self.rounds[-1].robots}
        return {robot: steps[robot] for robot in self.robot_weights}


def after_round(
    before: FleetProgress | None,
    plan: FleetPlan,
    result: RoundResult,
    rollouts: dict[str, TaskSuccesses] | None,
    seconds: float,
) -> FleetProgress:
    """Returns the progress after another round.

    Args:
        before: Progress before it; None if it is the first.
        plan: The fleet.
        result: Result of the round.
        rollouts: Successes of the merged policy by task; None if it was not evaluated.
        seconds: Wall time of the round.
    """
    robots, tally = tuple(result.robots.values()), None
    size = sum(each.downloaded_bytes + each.uploaded_bytes for each in robots)
    if plan.config.streaming is not None:  # of these, there may be thousands
        robots, tally = (), _tally(result)
    rounds = () if before is None else before.rounds
    summary = RoundSummary(
        round=result.number,
        epochs=result.number * plan.config.epochs_per_round,
        robots=robots,
        bytes_so_far=(rounds[-1].bytes_so_far if rounds else 0) + size,
        loss=result.loss,
        moved_fraction=result.moved_fraction,
        rollouts=rollouts,
        seconds=round(seconds, 3),
        tally=tally,
    )
    return FleetProgress(
        (*rounds, summary), result.weights, result.robot_weights, result.server_state
    )


def _tally(result: RoundResult) -> Tally:
    robots = list(result.robots.values())
    merged = [each for each in robots if each.left_out is None]
    late = sum(each.left_out == LATE for each in robots)
    losses = [each.loss for each in merged if each.loss is not None]
    return Tally(
        asked=len(robots),
        merged=len(merged),
        failed=len(robots) - len(merged) - late,
        not_awaited=late,
        came_late=result.came_late,
        steps=sum(each.steps or 0 for each in merged),
        loss=math.fsum(losses) / len(losses) if losses else None,
        messages=sum(each.messages for each in robots),
        downloaded_bytes=sum(each.downloaded_bytes for each in robots),
        uploaded_bytes=sum(each.uploaded_bytes for each in robots),
    )


def round_point(summary: RoundSummary) -> Point:
    """Returns the point of a round in the curves of a fleet."""
    values = {"loss/held_out": summary.loss, "bytes": float(summary.bytes_so_far)}
    if summary.moved_fraction is not None:
        values["moved_fraction"] = summary.moved_fraction
    return summary.round, values | success_values(summary.rollouts)


def defects(plan: FleetPlan, progress: FleetProgress) -> str:
    """Returns contradictions of a stored progress with its fleet or itself.

    Args:
        plan: The fleet.
        progress: The stored progress.

    Returns:
        The contradictions; empty if there is none.
    """
    return "; ".join([*_of_rounds(plan, progress.rounds), *_of_tensors(plan, progress)])


def _of_rounds(plan: FleetPlan, rounds: tuple[RoundSummary, ...]) -> Iterator[str]:
    config = plan.config
    if not 1 <= len(rounds) <= config.rounds:
        yield f"it has {len(rounds)} of {config.rounds} rounds"
        return
    size = 0
    for number, each in enumerate(rounds, 1):
        size += sum(robot.downloaded_bytes + robot.uploaded_bytes for robot in each.robots)
        if each.tally is not None:
            size += each.tally.downloaded_bytes + each.tally.uploaded_bytes
        if (
            (each.round, each.epochs) != (number, number * config.epochs_per_round)
            or not _are_participants(plan, number, each)
            or each.bytes_so_far != size
            or (each.rollouts is not None) != config.evaluates(number)
            or not 0 <= each.loss < math.inf
            or not 0 <= (each.moved_fraction or 0) <= 1
        ):
            yield f"the summary of round {number} is not one of this fleet"


def _are_participants(plan: FleetPlan, number: int, summary: RoundSummary) -> bool:
    """Whether a summary lists the robots of a round, with possible numbers."""
    participants = plan.participants(number)
    if plan.config.streaming is not None:
        tally = summary.tally
        return not summary.robots and tally is not None and _adds_up(tally, len(participants))
    robots = summary.robots
    if plan.config.life is not None:  # `frozen` robots report no losses
        numbers = {robot.robot for robot in robots}
        return summary.tally is None and numbers <= set(range(len(plan.clients)))
    return (
        summary.tally is None
        and [robot.robot for robot in robots] == participants
        and all(map(_is_possible, robots))
        and any(robot.left_out is None for robot in robots)
    )


def _adds_up(tally: Tally, asked: int) -> bool:
    parts = (tally.merged, tally.failed, tally.not_awaited)
    numbers = (*parts, tally.came_late, tally.downloaded_bytes, tally.uploaded_bytes)
    return (
        tally.asked == sum(parts) == asked
        and tally.merged >= 1
        and tally.steps >= tally.merged
        and min(numbers) >= 0
        and 0 <= (tally.loss or 0) < math.inf
    )


def _is_possible(robot: ClientSummary) -> bool:
    if (robot.steps is None) != (robot.loss is None):
        return False
    if robot.steps is None or robot.loss is None:
        return robot.left_out is not None
    sizes = (robot.messages, robot.downloaded_bytes, robot.uploaded_bytes)
    return robot.steps >= 1 and 0 <= robot.loss < math.inf and min(sizes) >= 1


def _of_tensors(plan: FleetPlan, progress: FleetProgress) -> Iterator[str]:
    owners = {"the merged policy": progress.weights} | {
        f"robot {robot}": weights for robot, weights in progress.robot_weights.items()
    }
    yield from _of_server(plan, progress)
    for owner, weights in owners.items():
        try:
            require_weights(plan.form, weights)
        except CheckpointError as error:
            yield f"{owner}: {error}".rstrip(".")
    if progress.rounds:
        last = progress.rounds[-1].robots
        merged = sorted(robot.robot for robot in last if robot.left_out is None)  # not streaming
        if plan.config.life is not None:  # others may be kept
            merged = sorted({*merged, *progress.robot_weights})
        if list(progress.robot_weights) != merged:
            yield f"it holds weights of the robots {list(progress.robot_weights)}, not {merged}"


def _of_server(plan: FleetPlan, progress: FleetProgress) -> Iterator[str]:
    server, steps = plan.config.server, len(progress.rounds)
    if plan.config.initialization == "own":
        steps -= 1  # in the first round, there are no weights before the step
    names = state_names(server) if server is not None and steps > 0 else ()
    if set(progress.server_state) != set(names):
        yield f"it holds {list(progress.server_state)} of the server, not {list(names)}"
        return
    expected = {name: tensor.shape for name, tensor in learned_tensors(plan.form).items()}
    for name, tensors in progress.server_state.items():
        found = {key: tensor.shape for key, tensor in tensors.items()}
        if found != expected or not all(map(_is_double, tensors.values())):
            yield f"the server's {name} is not one of this fleet"


def _is_double(tensor: torch.Tensor) -> bool:
    return tensor.dtype == torch.float64 and bool(torch.isfinite(tensor).all())
