"""A process that serves many robots in turn, and keeps the data of the last ones open."""

from functools import lru_cache

from fleet_tools.baselines.federated.assignment import Assignment
from fleet_tools.baselines.federated.robot import FleetRobot, open_samples
from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.config.values import parse
from fleet_tools.storage.strict_json import loads

MEMORY = 256e6
"""Bytes that a host holds for robots, unless it is told otherwise."""

_DATASETS = 8
"""Number of lists of datasets whose manifests a host keeps; the robots of a fleet have the same."""


class RobotHost:
    """Answers messages to robots, any one of them at any time.

    A robot's answer depends on its assignment and the message alone, so that a robot which was
    dropped, or served by another host before, answers with the same bits.

    Args:
        memory: Bytes that it holds for robots between messages; beyond them, it drops the robots
            that it has not served for longest. The one that it served last stays in any case.
    """

    def __init__(self, memory: float = MEMORY) -> None:
        self._memory = memory
        self._robots: dict[str, FleetRobot] = {}  # by assignment, in the order of their last use
        self._samples = lru_cache(_DATASETS)(open_samples)

    @property
    def held(self) -> list[str]:
        """Assignments of the robots whose data are open, the last one served last."""
        return list(self._robots)

    def answer(self, assignment: str, message: bytes) -> bytes:
        """Returns the answer of a robot to a message.

        A robot that raises is dropped, and what the host knows of datasets with it: their files may
        have been mended before it is sent the next message.

        Args:
            assignment: The robot's assignment as JSON.
            message: See `FleetRobot.answer`.

        Raises:
            FleetToolsError: See `FleetRobot.answer`.
        """
        robot = self._robots.pop(assignment, None)
        try:
            if robot is None:
                robot = FleetRobot(_read(assignment), samples=self._samples)
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


def _read(text: str) -> Assignment:
    try:
        data = loads(text)
    except ValueError as error:
        raise MessageError(f"An assignment is JSON: {error}.") from None
    return parse(Assignment, data, "The assignment")
