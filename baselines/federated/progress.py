"""Progress of a fleet, and summaries of its rounds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet_tools.baselines.federated.closing import LATE
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.robot_summary import RobotSummary, Tally
from fleet_tools.baselines.federated.rounds import RobotResult, RoundResult
from fleet_tools.baselines.federated.server_optimizer import ServerState
from fleet_tools.baselines.federated.streaming.rounds import StreamedRound
from fleet_tools.baselines.training.reports import Point, success_values
from fleet_tools.baselines.training.rollouts import TaskSuccesses
from fleet_tools.baselines.training.state import Tensors
from fleet_tools.config.values import Value


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
        seconds: Wall time of the round, since it was last begun.
        tally: Numbers of the participants of a streaming round, whose summaries have a file of
            their own; None of another round.
    """

    round: int
    epochs: int
    robots: tuple[RobotSummary, ...]
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
    def robot_steps(self) -> list[int]:
        """Numbers of steps that the robots of `robot_weights` learned from in the last round."""
        steps = {each.robot: each.steps or 0 for each in self.rounds[-1].robots}
        return [steps[robot] for robot in self.robot_weights]


def after_round(
    before: FleetProgress | None,
    plan: FleetPlan,
    result: RoundResult | StreamedRound,
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
    if isinstance(result, StreamedRound):
        robots, robot_weights, moved_fraction, tally = (), {}, None, _tally(result)
        size = tally.bytes_to_robots + tally.bytes_from_robots
    else:
        robots = tuple(_summary_of(robot, each) for robot, each in result.robots.items())
        robot_weights = {
            robot: update.weights
            for robot, each in result.robots.items()
            if (update := each.merged_update) is not None
        }
        moved_fraction, tally = result.moved_fraction, None
        size = sum(each.bytes_to_robot + each.bytes_from_robot for each in robots)
    rounds = () if before is None else before.rounds
    summary = RoundSummary(
        round=result.number,
        epochs=result.number * plan.config.epochs_per_round,
        robots=robots,
        bytes_so_far=(rounds[-1].bytes_so_far if rounds else 0) + size,
        loss=result.loss,
        moved_fraction=moved_fraction,
        rollouts=rollouts,
        seconds=round(seconds, 3),
        tally=tally,
    )
    return FleetProgress((*rounds, summary), result.weights, robot_weights, result.server_state)


def _summary_of(robot: int, result: RobotResult) -> RobotSummary:
    update, traffic = result.update, result.traffic
    return RobotSummary(
        robot=robot,
        steps=update and update.steps,
        loss=update and update.loss,
        left_out=result.left_out,
        messages=traffic.calls,
        bytes_to_robot=traffic.bytes_to_robots,
        bytes_from_robot=traffic.bytes_from_robots,
    )


def _tally(result: StreamedRound) -> Tally:
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
        bytes_to_robots=sum(each.bytes_to_robot for each in robots),
        bytes_from_robots=sum(each.bytes_from_robot for each in robots),
    )


def round_point(summary: RoundSummary) -> Point:
    """Returns the point of a round in the curves of a fleet."""
    values = {"loss/held_out": summary.loss, "bytes": float(summary.bytes_so_far)}
    if summary.moved_fraction is not None:
        values["moved_fraction"] = summary.moved_fraction
    return summary.round, values | success_values(summary.rollouts)
