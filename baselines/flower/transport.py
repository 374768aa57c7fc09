"""Robots on nodes of Flower: the `Transport` of a fleet over Flower's grid."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fleet_merging.errors import MessageError
from fleet_tools.baselines.federated.messages import Answer, Assignment, Message, decode, encode
from fleet_tools.baselines.federated.transport import Answers, LostClient, Report, loss_report
from fleet_tools.baselines.flower import flower
from fleet_tools.baselines.flower.records import DataQuestion, content, read_bytes
from fleet_tools.baselines.flower.roster import Mail, Roster, failure

LATE_FACTOR = 2.0
"""Multiple of a deadline for which Flower keeps a message; answers within it are late."""


class FlowerTransport:
    """Robots on nodes that run `fleet_tools.baselines.flower.client:app`.

        complete(FleetWriter(folder, plan), FlowerTransport(grid, plan.assignments))

    Each message is one message of Flower to the robot's node, which starts a process for it. Flower
    does not recall messages: an offline node gets its own when it returns, unless the message has
    expired.

    Args:
        grid: Flower's grid, which a `ServerApp` is given.
        assignments: Assignments of the robots, by robot number; they go with each message.
        timeout_s: Time limit of an answer if a round has no deadline, s.
        roster: The nodes; the grid's by default.
        report: Called with a line on each lost robot.

    Attributes:
        roster: As given.
    """

    def __init__(
        self,
        grid: Any,
        assignments: Sequence[Assignment],
        *,
        timeout_s: float = 3600.0,
        roster: Roster | None = None,
        report: Report = lambda line: None,
    ) -> None:
        self.roster = roster or Roster(grid, DataQuestion())
        self._grid, self._assignments, self._timeout_s = grid, assignments, timeout_s
        self._report, self._late = report, Mail[int](grid)

    def exchange(
        self, messages: Mapping[int, Message], *, deadline_s: float | None = None
    ) -> Answers:
        """See `Transport`. Flower does not recall messages that no robot has begun."""
        limit_s = self._timeout_s if deadline_s is None else deadline_s
        end_s = time.monotonic() + limit_s
        self.roster.refresh(end_s, messages)
        nodes = {robot: self.roster.node_of(robot) for robot in messages}
        for robot, node in nodes.items():
            if node is None:
                yield robot, self._lost(robot, "its node is not online, or did not report")
        keep_s = limit_s if deadline_s is None else LATE_FACTOR * limit_s
        mail: Mail[int] = Mail(self._grid)
        for robot in mail.send(
            {
                robot: self._message(robot, messages[robot], node, keep_s)
                for robot, node in nodes.items()
                if node is not None
            }
        ):
            yield robot, self._lost(robot, "the SuperLink did not take its message")
        try:
            for robot, reply in mail.until(end_s):
                yield robot, self._answer(robot, reply)
            if deadline_s is None:
                for robot in mail.take_awaited():
                    yield robot, self._lost(robot, f"it took longer than {limit_s:g} s")
        finally:
            self._late.awaited |= mail.awaited

    def late(self) -> list[int]:
        """See `Transport`. Errors, and messages that expired, are no answers."""
        return [robot for robot, reply in self._late.arrived() if not reply.has_error()]

    def end(self, robot: int) -> None:
        """See `Transport`; a robot's process ends with its answer."""

    def close(self) -> None:
        """See `Transport`; likewise."""

    def _message(self, robot: int, message: Message, node: int, keep_s: float) -> Any:
        body = content(self._assignments[robot], encode(message))
        ttl = keep_s if math.isfinite(keep_s) else None
        return flower("app").Message(body, node, "train", ttl=ttl)

    def _answer(self, robot: int, reply: Any) -> Answer | LostClient:
        if (reason := failure(reply)) is not None:
            return self._lost(robot, reason)
        try:
            return decode(read_bytes(reply))
        except MessageError as error:
            return self._lost(robot, str(error))

    def _lost(self, robot: int, reason: str) -> LostClient:
        lost = LostClient(reason)
        self._report(loss_report(robot, lost))
        return lost
