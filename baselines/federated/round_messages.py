"""Messages to robots and their answers in one round, and the traffic of each robot.

`RoundMessages.ask` sends all messages of a round: requests to train or for changes, and queries of
a merge. With compressed answers, the server takes the decoded ones and counts the compressed
bytes. Processes of a simulation pass them as they are.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fleet_merging.errors import MessageError
from fleet_merging.queries.data_holder import DataHolder
from fleet_merging.queries.query import DataAnswer, DataQuery
from fleet_merging.queries.traffic import DataHolderError, Traffic
from fleet_merging.queries.validity import MALFORMED, NO_LIMITS, Limits
from fleet_tools.baselines.federated import compact
from fleet_tools.baselines.federated.compact import Known, UploadConfig
from fleet_tools.baselines.federated.messages import Answer, Message, Trained, size_of
from fleet_tools.baselines.federated.transport import LostClient, Transport
from fleet_tools.config.values import Value

LATE = "it had not answered when the round closed"
"""Why a robot is left out after the round closed."""


class ClientSummary(Value):
    """Traffic of a robot in a round.

    Attributes:
        robot: Number of the robot.
        steps: Number of steps of its data; None if it was lost before it replied.
        loss: Mean loss over them; None likewise.
        left_out: Why it was left out of the merge; None if it was merged.
        messages: Number of messages to it.
        downloaded_bytes, uploaded_bytes: Size of the messages.
    """

    robot: int
    steps: int | None = None
    loss: float | None = None
    left_out: str | None = None
    messages: int = 0
    downloaded_bytes: int = 0
    uploaded_bytes: int = 0


class Aggregator(Protocol):
    """Takes answers as they come, in any order."""

    def add(self, robot: int, answer: Answer) -> None:
        """Takes an answer, or raises `MessageError` if it is invalid."""
        ...


class RoundMessages:
    """All messages of one round.

    Args:
        transport: Transport to the robots.
        robots: Traffic of the round before it was interrupted, by robot number.
        uploads: Compression of answers; None sends them as they are.
        most_bytes: most_bytes(robot): bytes that a robot may upload in the round; it does not send
            larger answers.
        known: Weights that robots and server share before; None if they share none.

    Attributes:
        transport: As given.
        robots: Traffic of each robot so far, by robot number.
    """

    def __init__(
        self,
        transport: Transport,
        robots: Mapping[int, ClientSummary] | None = None,
        uploads: UploadConfig | None = None,
        most_bytes: Callable[[int], float] = lambda robot: math.inf,
        known: Known | None = None,
    ) -> None:
        self.transport, self.robots, self._uploads = transport, dict(robots or {}), uploads
        self._most_bytes, self._known = most_bytes, known
        self._size: tuple[object, int] = (None, 0)

    def ask(
        self,
        messages: Mapping[int, Message],
        aggregator: Aggregator,
        *,
        wanted: int | None = None,
        deadline_s: float | None = None,
        after_answer: Callable[[], None] = lambda: None,
    ) -> list[int]:
        """Sends messages, and takes answers until enough are valid, or until a deadline.

        Args:
            messages: A message for each robot, by robot number.
            aggregator: Takes the answers.
            wanted: Number of valid answers that suffice; None for all.
            deadline_s: Time limit, s; None for none.
            after_answer: Called after each valid answer.

        Returns:
            Numbers of the robots that answered validly, ascending.
        """
        taken: list[int] = []
        silent = set(messages)
        answers = self.transport.exchange(messages, deadline_s=deadline_s)
        with contextlib.closing(answers):
            for robot, answer in answers:
                if robot not in silent:  # not asked, or it has answered already
                    continue
                silent.discard(robot)
                answer, size = self.arrived(answer)
                sent = self.robots[robot].uploaded_bytes if robot in self.robots else 0
                if sent + size > (most := self._most_bytes(robot)):
                    needed = f"{size} bytes after {sent}" if sent else f"{size} bytes"
                    answer = LostClient(f"it may upload {most:g} bytes, and would send {needed}")
                    size = 0
                reason = self._add(aggregator, robot, answer)
                self.record(robot, messages[robot], answer, reason, size)
                if reason is None:
                    taken.append(robot)
                    after_answer()
                    if len(taken) == wanted:
                        break
        for robot in sorted(silent):
            self.record(robot, messages[robot], None, LATE)
        return sorted(taken)

    def record(
        self,
        robot: int,
        message: Message,
        answer: Answer | LostClient | None,
        left_out: str | None = None,
        received: int | None = None,
    ) -> None:
        """Adds a message and its answer to the traffic of a robot.

        Args:
            robot: Number of the robot.
            message: The message.
            answer: The answer; None if none came.
            left_out: Why the robot is left out; None if it is not.
            received: Bytes of the answer; None computes them.
        """
        before = self.robots.get(robot) or ClientSummary(robot=robot)
        if received is None:
            received = 0 if answer is None else self.arrived(answer)[1]
        learned = answer if isinstance(answer, Trained) and left_out is None else before
        self.robots[robot] = before.model_copy(
            update={
                "steps": learned.steps,
                "loss": learned.loss,
                "left_out": left_out,
                "messages": before.messages + 1,
                "downloaded_bytes": before.downloaded_bytes + self._size_of(message),
                "uploaded_bytes": before.uploaded_bytes + received,
            }
        )

    def leave_out(self, robot: int, reason: str) -> None:
        """Ends a robot, with a reason."""
        self.transport.end(robot)
        summary = self.robots.get(robot) or ClientSummary(robot=robot)
        self.robots[robot] = summary.model_copy(update={"left_out": reason})

    def merged(self) -> list[int]:
        """Returns the robots that were not left out, ascending."""
        return [robot for robot in sorted(self.robots) if self.left_out(robot) is None]

    def left_out(self, robot: int) -> str | None:
        """Returns why a robot is left out; None if it is not, or was not asked."""
        return each.left_out if (each := self.robots.get(robot)) else None

    def traffic(self) -> Traffic:
        """Returns the traffic of all robots so far."""
        robots = self.robots.values()
        return Traffic(
            sum(each.messages for each in robots),
            sum(each.downloaded_bytes for each in robots),
            sum(each.uploaded_bytes for each in robots),
        )

    def arrived(self, answer: Answer | LostClient) -> tuple[Answer | LostClient, int]:
        """Returns an answer as it arrives, and its size in bytes; 0 if it cannot be sent."""
        if not isinstance(answer, LostClient):
            with contextlib.suppress(MessageError, *MALFORMED):
                if self._uploads is None:
                    return answer, size_of(answer)
                sent = compact.encode(answer, self._uploads, self._known)
                return compact.decode(sent, self._known), len(sent)
        return answer, 0

    def _add(self, aggregator: Aggregator, robot: int, answer: Answer | LostClient) -> str | None:
        """Lets the aggregator take an answer, and returns a reason if it does not."""
        if isinstance(answer, LostClient):
            return answer.reason
        try:
            aggregator.add(robot, answer)
        except (MessageError, *MALFORMED) as error:
            self.transport.end(robot)
            known = isinstance(error, MessageError)
            return str(error) if known else f"Its answer is malformed: {error!r}."
        return None

    def _size_of(self, message: Message) -> int:
        if self._size[0] is not message:  # most are sent to many robots
            self._size = message, size_of(message)
        return self._size[1]


@dataclass(frozen=True, eq=False)
class RobotDataHolder:
    """A robot as a data holder of merging methods, asked together with the robots of a merge.

    Attributes:
        robot: Number of the robot.
        group: The robots of the merge.
        limits: Bounds of its answers.
    """

    robot: int
    group: "RobotGroup"
    limits: Limits = NO_LIMITS

    def answer(self, query: DataQuery) -> DataAnswer:
        """Sends a query, and waits for the answer; see `DataHolder`.

        Raises:
            DataHolderError: The robot is lost.
        """
        return self.group.answer_all([(self, query)])[0][0]


@dataclass(frozen=True, eq=False)
class RobotGroup:
    """The robots of a merge, a `merging.queries.traffic.DataHolderGroup`.

    Attributes:
        messages: The messages of the round.
    """

    messages: RoundMessages

    def answer_all(
        self, queries: Sequence[tuple[DataHolder, DataQuery]]
    ) -> tuple[list[DataAnswer], Traffic]:
        """Sends a query to each robot, and waits for all answers; see `DataHolderGroup`.

        Raises:
            DataHolderError: A robot is lost.
        """
        asked: list[tuple[Any, DataQuery]] = list(queries)
        before = self.messages.traffic()
        answers = self.answers_to(asked)
        for holder, _ in asked:
            if (reason := self.messages.left_out(holder.robot)) is not None:
                raise DataHolderError(holder, reason)
        after = self.messages.traffic()
        traffic = Traffic(
            after.calls - before.calls,
            after.downloaded_bytes - before.downloaded_bytes,
            after.uploaded_bytes - before.uploaded_bytes,
        )
        return [answers[holder.robot] for holder, _ in asked], traffic

    def answers_to(self, asked: Sequence[tuple[Any, DataQuery]]) -> dict[int, DataAnswer]:
        """Sends queries, and returns the answers that came, by robot number."""
        answers = _Answers()
        self.messages.ask({holder.robot: query for holder, query in asked}, answers)
        return answers.by_robot

    def refused(self, robot: int) -> None:
        """Called when a robot is left out, for its last answer or since none came."""


class _Answers:
    """Keeps answers, which the caller checks."""

    def __init__(self) -> None:
        self.by_robot: dict[int, Any] = {}

    def add(self, robot: int, answer: Answer) -> None:
        self.by_robot[robot] = answer
