"""How messages reach the robots of a fleet, wherever they run. Only bytes go in and come out.

A robot that dies, hangs or fails is reported as lost, which affects no other robot; it is started
again when it is sent the next message.
"""

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fleet_tools.baselines.federated.assignment import Assignment
from fleet_tools.baselines.federated.robot_host import RobotHost

Report = Callable[[str], None]
"""Is told in one line which robot or machine was lost, and why."""


@dataclass(frozen=True)
class LostRobot:
    """Result of a message that a robot did not answer.

    Attributes:
        reason: Why it did not.
    """

    reason: str


Answers = Generator[tuple[int, bytes | LostRobot], None, None]
"""Robots, by number, and their answers."""


class Transport(Protocol):
    """Sends messages to the robots of a fleet, wherever they run; one exchange at a time."""

    def exchange(
        self, messages: Mapping[int, bytes], *, deadline_s: float | None = None
    ) -> Answers:
        """Sends messages, and yields each answer as soon as it arrives.

        If the caller closes the iterator (`contextlib.closing`), as when enough robots have
        answered, messages that no robot has begun are not sent. Answers that come after that or
        after the deadline are dropped, and `late` names their robots.

        Args:
            messages: A message for each robot, by robot number.
            deadline_s: Time after the first `next` when the iterator ends, without a word about
                robots that have not answered; None waits for all.
        """
        ...

    def late(self) -> list[int]:
        """Returns the robots whose answers came too late, since the last call."""
        ...

    def end(self, robot: int) -> None:
        """Ends a robot, whatever it is doing."""
        ...

    def close(self) -> None:
        """Ends all robots."""
        ...


class LocalTransport:
    """All robots in this process, one after another, without a time limit of their answers.

    Args:
        assignments: Assignments of the robots, by robot number.
        memory: See `RobotHost`.
        report: Is told of lost robots.
    """

    def __init__(
        self,
        assignments: Sequence[Assignment],
        *,
        memory: float = 1e9,
        report: Report = lambda line: None,
    ) -> None:
        self._assignments, self._memory, self._report = assignments, memory, report
        self._host = RobotHost(memory)
        self._late: list[int] = []

    def exchange(
        self, messages: Mapping[int, bytes], *, deadline_s: float | None = None
    ) -> Answers:
        """See `Transport`. A robot that has begun is not interrupted at the deadline."""
        deadline = time.monotonic() + (math.inf if deadline_s is None else deadline_s)
        for robot in messages:
            if time.monotonic() >= deadline:
                return
            try:
                answer = self._host.answer(self._assignments[robot].to_json(), messages[robot])
            except Exception as error:
                answer = LostRobot(one_line(error))
                self._report(loss(robot, answer))
            if time.monotonic() < deadline:
                yield robot, answer
            elif not isinstance(answer, LostRobot):
                self._late.append(robot)

    def late(self) -> list[int]:
        """See `Transport`."""
        late, self._late = self._late, []
        return late

    def end(self, robot: int) -> None:
        """See `Transport`."""
        self._host.forget(self._assignments[robot].to_json())

    def close(self) -> None:
        """See `Transport`."""
        self._host = RobotHost(self._memory)


def loss(robot: int, lost: LostRobot) -> str:
    """Returns a line about a lost robot."""
    return f"Robot {robot} is lost: {lost.reason}"


def one_line(error: BaseException) -> str:
    """Returns an error as one line; Ray's messages about actors have many."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
