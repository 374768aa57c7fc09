"""Where robots run: in this process, or each in a Ray actor. Only bytes go in and come out.

A robot that dies, hangs or fails is reported as lost, which affects no other robot; it is started
again when it is sent the next message.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from fleet_tools.baselines.federated.assignment import Assignment
from fleet_tools.baselines.federated.ray_data_holder import RayDataHolder, result_of
from fleet_tools.baselines.federated.robot import FleetRobot
from fleet_tools.parallel import actors
from fleet_tools.parallel.liveness import liveness_of
from fleet_tools.parallel.workers import POLL_S, START_LIMIT_S


@dataclass(frozen=True)
class LostRobot:
    """Result of a message that a robot did not answer.

    Attributes:
        reason: Why it did not.
    """

    reason: str


class Transport(Protocol):
    """Sends messages to the robots of a fleet, wherever they run."""

    def exchange(
        self, messages: Mapping[int, bytes], *, deadline_s: float | None = None
    ) -> Iterator[tuple[int, bytes | LostRobot]]:
        """Sends messages, by robot number, and yields each answer as soon as it arrives."""
        ...

    def late(self) -> list[int]:
        """See `Transport`."""
        return []

    def end(self, robot: int) -> None:
        """Ends a robot, whatever it is doing."""
        ...

    def close(self) -> None:
        """Ends all robots."""
        ...


class LocalTransport:
    """All robots in this process, one after another, without a time limit.

    Args:
        assignments: Assignments of the robots, by robot number.
    """

    def __init__(self, assignments: Sequence[Assignment]) -> None:
        self._assignments = assignments
        self._robots: dict[int, FleetRobot] = {}

    def exchange(
        self, messages: Mapping[int, bytes], *, deadline_s: float | None = None
    ) -> Iterator[tuple[int, bytes | LostRobot]]:
        """See `Transport`."""
        for robot, message in messages.items():
            if robot not in self._robots:
                self._robots[robot] = FleetRobot(self._assignments[robot])
            try:
                answer = self._robots[robot].answer(message)
            except Exception as error:
                self.end(robot)
                yield robot, LostRobot(_one_line(error))
            else:
                yield robot, answer

    def late(self) -> list[int]:
        """See `Transport`."""
        return []

    def end(self, robot: int) -> None:
        """See `Transport`."""
        self._robots.pop(robot, None)

    def close(self) -> None:
        """See `Transport`."""
        self._robots.clear()


@dataclass(frozen=True)
class _Task:
    """The present task of a robot: starting, or answering."""

    robot: int
    starting: bool
    deadline: float


class RayTransport:
    """Each robot in a Ray actor, on the cluster to which this process is connected.

    Actors reserve no core, so that there may be more of them than cores; on a cluster of several
    machines, Ray spreads them.

    Args:
        assignments: Assignments of the robots, by robot number.
        at_once: Number of robots that work at the same time.
        timeout_s: Time limit of an answer.

    Attributes:
        data_holders: The robots that run or start, by robot number.
        locations: Locations of those that run.
    """

    def __init__(
        self, assignments: Sequence[Assignment], *, at_once: int, timeout_s: float
    ) -> None:
        import ray

        self._assignments = assignments
        self._at_once, self._timeout_s = at_once, timeout_s
        self.data_holders: dict[int, RayDataHolder] = {}
        self.locations: dict[int, actors.ActorLocation] = {}
        self._liveness = liveness_of(ray)

    def exchange(
        self, messages: Mapping[int, bytes], *, deadline_s: float | None = None
    ) -> Iterator[tuple[int, bytes | LostRobot]]:
        """See `Transport`."""
        import ray

        waiting = deque(robot for robot in messages if robot in self.locations)
        tasks = {
            self._start(robot): _Task(robot, True, time.monotonic() + START_LIMIT_S)
            for robot in messages
            if robot not in self.locations
        }
        while waiting or tasks:
            while waiting and sum(not task.starting for task in tasks.values()) < self._at_once:
                robot = waiting.popleft()
                reference = self.data_holders[robot].begin(messages[robot])
                tasks[reference] = _Task(robot, False, time.monotonic() + self._timeout_s)
            self._liveness.require()
            done, _ = ray.wait(list(tasks), num_returns=1, timeout=POLL_S)
            now = time.monotonic()
            late = [each for each, task in tasks.items() if task.deadline < now]
            for reference in dict.fromkeys([*done, *late]):
                task = tasks.pop(reference)
                result = self._result(task, reference, reference in done)
                if isinstance(result, LostRobot):
                    self._liveness.await_answers()
                    self.end(task.robot)
                    yield task.robot, result
                elif task.starting:
                    self.locations[task.robot] = result
                    waiting.append(task.robot)
                else:
                    yield task.robot, result

    def late(self) -> list[int]:
        """See `Transport`."""
        return []

    def end(self, robot: int) -> None:
        """See `Transport`."""
        if robot in self.data_holders:
            actors.end(self.data_holders.pop(robot).actor, self.locations.pop(robot, None))

    def close(self) -> None:
        """See `Transport`."""
        for robot in list(self.data_holders):
            self.end(robot)

    def _start(self, robot: int) -> Any:
        """Starts a robot, and returns a reference to its location."""
        self.data_holders[robot] = RayDataHolder.start(
            partial(FleetRobot, self._assignments[robot]),
            num_cpus=0,
            max_restarts=0,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": actors.ONE_THREAD},
        )
        return self.data_holders[robot].location()

    def _result(self, task: _Task, reference: Any, done: bool) -> Any:
        """Returns the location of a robot that started, its answer, or why it is lost."""
        from ray.exceptions import RayTaskError

        if not done:
            limit = START_LIMIT_S if task.starting else self._timeout_s
            return LostRobot(f"it took longer than {limit:g} s")
        try:
            return result_of(reference)
        except RayTaskError as error:
            return LostRobot(_one_line(error.cause))
        except Exception as error:
            return LostRobot(_one_line(error))


def _one_line(error: BaseException) -> str:
    """Returns an error as one line of a report; Ray's messages about actors have many."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
