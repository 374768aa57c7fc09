"""Whether a stored state of a fleet is one that its plan can have reached."""

import math
from collections.abc import Iterator

import torch

from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.progress import FleetProgress, RoundSummary
from fleet_tools.baselines.federated.robot_summary import RobotSummary, Tally
from fleet_tools.baselines.federated.server_optimizer import state_names
from fleet_tools.baselines.merging.buffers import learned_tensors
from fleet_tools.baselines.policies.checkpoint import CheckpointError, require_weights


def defects(plan: FleetPlan, progress: FleetProgress) -> str:
    """Says in what a stored progress contradicts its fleet or itself.

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
        size += sum(robot.bytes_to_robot + robot.bytes_from_robot for robot in each.robots)
        if each.tally is not None:
            size += each.tally.bytes_to_robots + each.tally.bytes_from_robots
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
    """Whether a summary speaks of the robots that a round asked, and of what they can have done."""
    participants = plan.participants(number)
    if plan.config.streaming is not None:
        tally = summary.tally
        return not summary.robots and tally is not None and _adds_up(tally, len(participants))
    robots = summary.robots
    return (
        summary.tally is None
        and [robot.robot for robot in robots] == participants
        and all(map(_is_possible, robots))
        and any(robot.left_out is None for robot in robots)
    )


def _adds_up(tally: Tally, asked: int) -> bool:
    parts = (tally.merged, tally.failed, tally.not_awaited)
    numbers = (*parts, tally.came_late, tally.bytes_to_robots, tally.bytes_from_robots)
    return (
        tally.asked == sum(parts) == asked
        and tally.merged >= 1
        and tally.steps >= tally.merged
        and min(numbers) >= 0
        and 0 <= (tally.loss or 0) < math.inf
    )


def _is_possible(robot: RobotSummary) -> bool:
    if (robot.steps is None) != (robot.loss is None):
        return False
    if robot.steps is None or robot.loss is None:
        return robot.left_out is not None
    sizes = (robot.messages, robot.bytes_to_robot, robot.bytes_from_robot)
    return robot.steps >= 1 and 0 <= robot.loss < math.inf and min(sizes) >= 1


def _of_tensors(plan: FleetPlan, progress: FleetProgress) -> Iterator[str]:
    expected = plan.blueprint.create_empty().state_dict()
    owners = {"the merged policy": progress.weights} | {
        f"robot {robot}": weights for robot, weights in progress.robot_weights.items()
    }
    yield from _of_server(plan, progress)
    for owner, weights in owners.items():
        try:
            require_weights(expected, weights)
        except CheckpointError as error:
            yield f"{owner}: {error}".rstrip(".")
    if progress.rounds:
        last = progress.rounds[-1].robots
        merged = sorted(robot.robot for robot in last if robot.left_out is None)  # not streaming
        if list(progress.robot_weights) != merged:
            yield f"it holds weights of the robots {list(progress.robot_weights)}, not {merged}"


def _of_server(plan: FleetPlan, progress: FleetProgress) -> Iterator[str]:
    server, steps = plan.config.server, len(progress.rounds)
    if plan.config.initialization == "own":
        steps -= 1  # in the first round, there are no weights from which it could step
    names = state_names(server) if server is not None and steps > 0 else ()
    if set(progress.server_state) != set(names):
        yield f"it holds {list(progress.server_state)} of the server, not {list(names)}"
        return
    expected = {
        name: tensor.shape
        for name, tensor in learned_tensors(plan.blueprint.create_empty().state_dict()).items()
    }
    for name, tensors in progress.server_state.items():
        found = {key: tensor.shape for key, tensor in tensors.items()}
        if found != expected or not all(map(_is_double, tensors.values())):
            yield f"the server's {name} is not one of this fleet"


def _is_double(tensor: torch.Tensor) -> bool:
    return tensor.dtype == torch.float64 and bool(torch.isfinite(tensor).all())
