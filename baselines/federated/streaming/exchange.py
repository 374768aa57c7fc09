"""One exchange of a streaming round: messages to robots, and what was exchanged with each."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from fleet_tools.baselines.federated.closing import LATE
from fleet_tools.baselines.federated.robot_summary import RobotSummary
from fleet_tools.baselines.federated.transport import LostRobot, Transport
from fleet_tools.baselines.merging.errors import MessageError

Summaries = dict[int, RobotSummary]
"""What was exchanged with each robot in a round so far, by robot number."""


class Messages(Mapping[int, bytes]):
    """Messages that are encoded when they are sent, so that one at a time is in memory.

    Args:
        robots: Numbers of the robots.
        encode: Returns a robot's message.
    """

    def __init__(self, robots: Sequence[int], encode: Callable[[int], bytes]) -> None:
        self._sizes: dict[int, int | None] = dict.fromkeys(robots)
        self._encode = encode

    def __getitem__(self, robot: int) -> bytes:
        """Returns a robot's message."""
        if robot not in self._sizes:
            raise KeyError(robot)
        message = self._encode(robot)
        self._sizes[robot] = len(message)
        return message

    def size(self, robot: int) -> int:
        """Returns the number of bytes of a robot's message, which is not encoded anew."""
        size = self._sizes[robot]
        return len(self[robot]) if size is None else size

    def __iter__(self) -> Iterator[int]:
        """Yields the robots' numbers."""
        return iter(self._sizes)

    def __len__(self) -> int:
        """Returns the number of robots."""
        return len(self._sizes)


def exchange(
    transport: Transport,
    messages: Messages,
    take: Callable[[int, bytes], tuple[int | None, float | None]],
    summaries: Summaries,
    *,
    wanted: int,
    deadline: float | None,
    after_answer: Callable[[], None] = lambda: None,
) -> list[int]:
    """Sends messages, and takes answers until as many as are wanted are valid, or until a deadline.

    Args:
        transport: Transport to the robots.
        messages: A message for each robot.
        take: Called with each answer; returns the robot's number of steps and loss, if it tells
            them, and raises `MessageError` if the answer is invalid.
        summaries: To which the exchange is added.
        wanted: Number of valid answers that suffice.
        deadline: Time limit, s; None for none.
        after_answer: Called after each answer, when it is in the summaries.

    Returns:
        Numbers of the robots that answered validly, ascending.
    """
    taken: list[int] = []
    silent = set(messages)
    with contextlib.closing(transport.exchange(messages, deadline_s=deadline)) as answers:
        for robot, answer in answers:
            silent.discard(robot)
            sent = messages.size(robot)
            if isinstance(answer, LostRobot):
                _add(summaries, robot, sent, 0, left_out=answer.reason)
                continue
            try:
                steps, loss = take(robot, answer)
            except MessageError as error:
                transport.end(robot)
                _add(summaries, robot, sent, len(answer), left_out=str(error))
                continue
            _add(summaries, robot, sent, len(answer), steps=steps, loss=loss)
            taken.append(robot)
            after_answer()
            if len(taken) == wanted:
                break
    for robot in sorted(silent):
        _add(summaries, robot, messages.size(robot), 0, left_out=LATE)
    return sorted(taken)


def _add(
    summaries: Summaries,
    robot: int,
    sent: int,
    received: int,
    *,
    left_out: str | None = None,
    steps: int | None = None,
    loss: float | None = None,
) -> None:
    before = summaries.get(robot) or RobotSummary(
        robot=robot,
        steps=None,
        loss=None,
        left_out=None,
        messages=0,
        bytes_to_robot=0,
        bytes_from_robot=0,
    )
    changes = {
        "steps": before.steps if steps is None else steps,
        "loss": before.loss if loss is None else loss,
        "left_out": left_out,
        "messages": before.messages + 1,
        "bytes_to_robot": before.bytes_to_robot + sent,
        "bytes_from_robot": before.bytes_from_robot + received,
    }
    summaries[robot] = before.model_copy(update=changes)
