"""Fleets that are merged once, with a tap: it records or changes the robots' answers."""

from collections.abc import Callable, Sequence
from pathlib import Path

from fleet_tools.baselines.experiments.fleets import FIRST_REPLIES
from fleet_tools.baselines.federated.messages import Answer, Assignment, Message
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.rounds import combine, messages_of, run_round
from fleet_tools.baselines.federated.transport import (
    CachingTransport,
    LocalTransport,
    LostClient,
    RelayingTransport,
    Transport,
)
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.policies.merged_checkpoints import merged_checkpoint
from fleet_tools.errors import ConfigError

Tap = Callable[[int, Message, Answer], Answer]
"""tap(robot, message, answer): returns the answer that arrives instead."""


class TappedTransport(RelayingTransport):
    """A transport with a tap.

    Args:
        inner: Transport to the robots.
        tap: Gets the answer of each robot that is not lost.
    """

    def __init__(self, inner: Transport, tap: Tap) -> None:
        super().__init__(inner)
        self._tap = tap

    def relayed(
        self, robot: int, message: Message, answer: Answer | LostClient
    ) -> Answer | LostClient:
        """See `RelayingTransport`."""
        return answer if isinstance(answer, LostClient) else self._tap(robot, message, answer)


def robots_of(assignments: Sequence[Assignment], output: Path) -> Transport:
    """Returns a transport to robots; a folder of an experiment's results stores what they learn.

    Args:
        assignments: Their assignments, by robot number.
        output: The folder, as of `baselines.experiment`.
    """
    return CachingTransport(LocalTransport(assignments), assignments, output / FIRST_REPLIES)


def merge_once(plan: FleetPlan, robots: Transport) -> tuple[Checkpoint, dict[int, str]]:
    """Lets robots train, and merges them, as an experiment does.

    Args:
        plan: A fleet of one round.
        robots: Transport to its robots.

    Returns:
        The policy, and by number of a robot, why it is left out.

    Raises:
        ConfigError: The fleet has several rounds.
        FleetToolsError: A robot's training or the merge fails.
    """
    config = plan.config
    if config.rounds > 1 or config.life is not None or config.streaming is not None:
        raise ConfigError(
            "Uploads of a single merge are needed, but this fleet has several rounds or streams. "
            "Leave out `merge_every`, `life` and `streaming`."
        )
    result = run_round(plan, robots, 1, None)
    summaries, policy = [result.robots], Checkpoint(plan.blueprint, result.weights)
    if config.last_method is not None:
        messages = messages_of(plan, robots)
        steps = {robot: result.robots[robot].steps or 0 for robot in result.robot_weights}
        merged = combine(plan, messages, 1, result.robot_weights, steps)
        policy = merged_checkpoint(plan.blueprint, merged)
        summaries.append(messages.robots)
    left_out = {
        robot: each.left_out for own in summaries for robot, each in own.items() if each.left_out
    }
    return policy, left_out
