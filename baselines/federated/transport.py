"""The interface of transports to the robots of a fleet, and robots of this process.

A robot that dies, hangs or fails is reported as lost, without effect on other robots. The next
message starts it again. This process passes messages and answers as they are; other transports
send them as bytes, and decode each answer once.
"""

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from fleet_merging.errors import MessageError
from fleet_merging.queries.wire import contents, value_of
from fleet_tools.baselines.federated.messages import (
    CODECS,
    Answer,
    Assignment,
    LocalUpdate,
    Message,
    TrainRequest,
    encode,
)
from fleet_tools.baselines.federated.robot import FleetClient, open_samples
from fleet_tools.baselines.training.run import packages
from fleet_tools.config.values import parse
from fleet_tools.storage.strict_json import loads
from fleet_tools.storage.tensor_files import read_checked, write_checked

Report = Callable[[str], None]
"""Called with a line about a lost robot or machine, and the reason."""


@dataclass(frozen=True)
class LostClient:
    """Result of a message that a robot did not answer.

    Attributes:
        reason: Why it did not answer.
    """

    reason: str


Answers = Generator[tuple[int, Answer | LostClient], None, None]
"""Robots, by number, and their answers."""


class Transport(Protocol):
    """Sends messages to the robots of a fleet, wherever they run; one exchange at a time."""

    def exchange(
        self, messages: Mapping[int, Message], *, deadline_s: float | None = None
    ) -> Answers:
        """Sends messages, and yields each answer as soon as it arrives.

        If the caller closes the iterator (`contextlib.closing`), messages that no robot has begun
        are not sent. Answers after that or after the deadline are dropped, and `late` names their
        robots.

        Args:
            messages: A message for each robot, by robot number.
            deadline_s: Time after the first `next` when the iterator ends, without a result for
                robots that have not answered; None waits for all.
        """
        ...

    def late(self) -> list[int]:
        """Returns the robots that answered too late, since the last call."""
        ...

    def end(self, robot: int) -> None:
        """Ends a robot, idle or not."""
        ...

    def close(self) -> None:
        """Ends all robots."""
        ...


MEMORY = 256e6
"""Default bytes that a host holds for robots."""

_DATASETS = 8
"""Number of lists of datasets with open manifests in a host; robots of a fleet share one."""


class RobotHost:
    """Answers messages to robots, any one of them at any time.

    A robot's answer depends only on its assignment and the message. So a robot gives the same bits
    after it was dropped, or on another host.

    Args:
        memory: Bytes that it holds for robots between messages. Beyond them, it drops the robots
            that it has not served for longest, except the last one.
    """

    def __init__(self, memory: float = MEMORY) -> None:
        self._memory = memory
        self._robots: dict[str, FleetClient] = {}  # by assignment, in the order of their last use
        self._samples = lru_cache(_DATASETS)(open_samples)

    @property
    def held(self) -> list[str]:
        """Assignments of the robots with open data, the last one served last."""
        return list(self._robots)

    def answer(self, assignment: str, message: Message) -> Answer:
        """Returns the answer of a robot to a message.

        A robot that raises is dropped with the host's manifests: dataset files may be repaired
        before its next message.

        Args:
            assignment: The robot's assignment as JSON.
            message: See `FleetClient.answer`.

        Raises:
            FleetToolsError: See `FleetClient.answer`.
        """
        robot = self._robots.pop(assignment, None)
        try:
            if robot is None:
                robot = FleetClient(_assignment(assignment), samples=self._samples)
            answer = robot.answer(message)
        except BaseException:
            self._samples.cache_clear()
            raise
        self._robots[assignment] = robot
        self._drop_oldest()
        return answer

    def forget(self, assignment: str) -> None:
        """Drops a robot, if it is there."""
        self._robots.pop(assignment, None)

    def _drop_oldest(self) -> None:
        held = sum(robot.held_bytes for robot in self._robots.values())
        for assignment in list(self._robots)[:-1]:
            if held <= self._memory:
                return
            held -= self._robots.pop(assignment).held_bytes


def _assignment(text: str) -> Assignment:
    try:
        data = loads(text)
    except ValueError as error:
        raise MessageError(f"An assignment is JSON: {error}.") from None
    return parse(Assignment, data, "The assignment")


class LocalTransport:
    """All robots in this process, one after another, without a time limit of their answers.

    Args:
        assignments: Assignments of the robots, by robot number.
        memory: See `RobotHost`.
        report: Called with a line on each lost robot.
    """

    def __init__(
        self,
        assignments: Sequence[Assignment],
        *,
        memory: float = 1e9,
        report: Report = lambda line: None,
    ) -> None:
        self._memory, self._report = memory, report
        self._assignments = [assignment.to_json() for assignment in assignments]
        self._host = RobotHost(memory)
        self._late: list[int] = []

    def exchange(
        self, messages: Mapping[int, Message], *, deadline_s: float | None = None
    ) -> Answers:
        """See `Transport`. A robot that has begun is not interrupted at the deadline."""
        deadline = time.monotonic() + (math.inf if deadline_s is None else deadline_s)
        for robot in messages:
            if time.monotonic() >= deadline:
                return
            try:
                answer = self._host.answer(self._assignments[robot], messages[robot])
            except Exception as error:
                answer = LostClient(one_line(error))
                self._report(loss_report(robot, answer))
            if time.monotonic() < deadline:
                yield robot, answer
            elif not isinstance(answer, LostClient):
                self._late.append(robot)

    def late(self) -> list[int]:
        """See `Transport`."""
        late, self._late = self._late, []
        return late

    def end(self, robot: int) -> None:
        """See `Transport`."""
        self._host.forget(self._assignments[robot])

    def close(self) -> None:
        """See `Transport`."""
        self._host = RobotHost(self._memory)


def loss_report(robot: int, lost: LostClient) -> str:
    """Returns a line about a lost robot."""
    return f"Robot {robot} is lost: {lost.reason}"


def one_line(error: BaseException) -> str:
    """Returns an error as one line; Ray's messages about actors have many."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


class RelayingTransport:
    """A transport to the robots of another one, whose answers may be changed on their way.

    Args:
        inner: Transport to the robots.
    """

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def exchange(
        self, messages: Mapping[int, Message], *, deadline_s: float | None = None
    ) -> Answers:
        """See `Transport`."""
        with contextlib.closing(self._inner.exchange(messages, deadline_s=deadline_s)) as answers:
            for robot, answer in answers:
                yield robot, self.relayed(robot, messages[robot], answer)

    def relayed(
        self, robot: int, message: Message, answer: Answer | LostClient
    ) -> Answer | LostClient:
        """Returns what arrives in place of an answer.

        Args:
            robot: Number of the robot.
            message: The message.
            answer: Its answer.
        """
        return answer

    def late(self) -> list[int]:
        """See `Transport`."""
        return self._inner.late()

    def end(self, robot: int) -> None:
        """See `Transport`."""
        self._inner.end(robot)

    def close(self) -> None:
        """See `Transport`."""
        self._inner.close()


class CachingTransport(RelayingTransport):
    """A transport that takes replies to the first round from a cache.

    A reply depends only on the assignment and the request. Fleets that differ only in their merging
    method share it.

    Args:
        inner: Transport to the robots.
        assignments: Assignments of the robots, by robot number.
        folder: Folder of the cache; created with the first reply.
    """

    def __init__(self, inner: Transport, assignments: Sequence[Assignment], folder: Path) -> None:
        super().__init__(inner)
        self._assignments, self._folder = assignments, folder

    def exchange(
        self, messages: Mapping[int, Message], *, deadline_s: float | None = None
    ) -> Answers:
        """See `Transport`. Replies of the cache come first."""
        begun = time.monotonic()
        paths = {robot: self._path(robot, message) for robot, message in messages.items()}
        others = {}
        for robot, path in paths.items():
            if deadline_s is not None and time.monotonic() - begun >= deadline_s:
                return
            reply = None if path is None else read_reply(path)
            if reply is None:
                others[robot] = messages[robot]
            else:
                yield robot, reply
        left = None if deadline_s is None else max(0.0, begun + deadline_s - time.monotonic())
        with contextlib.closing(self._inner.exchange(others, deadline_s=left)) as answers:
            for robot, answer in answers:
                if (path := paths[robot]) is not None and isinstance(answer, LocalUpdate):
                    self._folder.mkdir(parents=True, exist_ok=True)
                    store_reply(path, answer)
                yield robot, answer

    def _path(self, robot: int, message: Message) -> Path | None:
        """Returns the file of a reply; None if the message is not a request of the first round."""
        if not isinstance(message, TrainRequest) or message.weights is not None:
            return None
        digest = hashlib.blake2b(encode(message), digest_size=16)
        for text in (self._assignments[robot].to_json(), json.dumps(packages())):
            digest.update(text.encode())
        return self._folder / f"{digest.hexdigest()}.safetensors"


_KIND = "kind"
"""Key of the kind of a stored reply."""


def store_reply(path: Path, reply: Answer) -> None:
    """Stores a reply with a digest, completely or not at all."""
    kind, tensors = contents(reply, CODECS)
    write_checked(path, _KIND, tensors, kind)


def read_reply(path: Path) -> Any:
    """Returns a stored reply; None if it is absent or damaged, and must be requested again."""
    with contextlib.suppress(MessageError):
        return read_checked(
            path, _KIND, lambda tensors, kind: value_of(kind, tensors, CODECS), MessageError
        )
    return None
