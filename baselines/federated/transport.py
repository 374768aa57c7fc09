"""Where robots run: in this process, or each in a Ray actor of its own. Bytes go in and come out.

Whatever goes wrong in a robot is said of it, and hurts no one else: it may die, hang or fail. Who
is ended is started anew when it is next asked.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from fleet_tools.baselines.federated.plan import Assignment
from fleet_tools.baselines.federated.ray_data_holder import RayRobot, received
from fleet_tools.baselines.federated.robot import FleetRobot
from fleet_tools.parallel import actors
from fleet_tools.parallel.workers import POLL_S, START_LIMIT_S


@dataclass(frozen=True)
class Lost:
    """What comes of a message that a robot does not answer.

    Attributes:
        reason: Why.
    """

    reason: str


class Hosts(Protocol):
    """Where the robots of a fleet run."""

    def answers(self, messages: Mapping[int, bytes]) -> Iterator[tuple[int, bytes | Lost]]:
        """Asks robots, by their numbers, and yields what they answer as soon as it is there."""
        ...

    def end(self, robot: int) -> None:
        """Ends a robot, whatever it is at."""
        ...

    def close(self) -> None:
        """Ends all."""
        ...


class LocalHosts:
    """All robots in this process, one after another; nothing can be timed out.

    Args:
        assignments: What the robots are told.
    """

    def __init__(self, assignments: Sequence[Assignment]) -> None:
        self._assignments = assignments
        self._robots: dict[int, FleetRobot] = {}

    def answers(self, messages: Mapping[int, bytes]) -> Iterator[tuple[int, bytes | Lost]]:
        """See `Hosts`."""
        for robot, message in messages.items():
            if robot not in self._robots:
                self._robots[robot] = FleetRobot(self._assignments[robot])
            try:
                yield robot, self._robots[robot].answer(message)
            except Exception as error:
                self.end(robot)
                yield robot, Lost(_said(error))

    def end(self, robot: int) -> None:
        """See `Hosts`."""
        self._robots.pop(robot, None)

    def close(self) -> None:
        """See `Hosts`."""
        self._robots.clear()


@dataclass(frozen=True)
class _Task:
    """What a robot is at: starting where there is no message yet."""

    robot: int
    starting: bool
    deadline: float


class RayHosts:
    """Each robot in a Ray actor, on the cluster that this process has joined.

    Actors ask for no core, so that there may be more of them than cores; on a cluster of several
    machines, Ray spreads them.

    Args:
        assignments: What the robots are told.
        at_once: How many work at the same time.
        timeout_s: What an answer may take.

    Attributes:
        places: Where those robots are that run, by their numbers.
    """

    def __init__(
        self, assignments: Sequence[Assignment], *, at_once: int, timeout_s: float
    ) -> None:
        self._assignments = assignments
        self._at_once, self._timeout_s = at_once, timeout_s
        self._robots: dict[int, RayRobot] = {}
        self.places: dict[int, actors.Place] = {}

    def answers(self, messages: Mapping[int, bytes]) -> Iterator[tuple[int, bytes | Lost]]:
        """See `Hosts`."""
        import ray

        waiting = deque(robot for robot in messages if robot in self.places)
        tasks = {
            self._start(robot): _Task(robot, True, time.monotonic() + START_LIMIT_S)
            for robot in messages
            if robot not in self.places
        }
        while waiting or tasks:
            while waiting and sum(not task.starting for task in tasks.values()) < self._at_once:
                robot = waiting.popleft()
                reference = self._robots[robot].begin(messages[robot])
                tasks[reference] = _Task(robot, False, time.monotonic() + self._timeout_s)
            done, _ = ray.wait(list(tasks), num_returns=1, timeout=POLL_S)
            now = time.monotonic()
            late = [each for each, task in tasks.items() if task.deadline < now]
            for reference in dict.fromkeys([*done, *late]):
                task = tasks.pop(reference)
                answer = self._ended(task, reference if reference in done else None)
                if isinstance(answer, Lost):
                    self.end(task.robot)
                    yield task.robot, answer
                elif task.starting:
                    self.places[task.robot] = answer
                    waiting.append(task.robot)
                else:
                    yield task.robot, answer

    def end(self, robot: int) -> None:
        """See `Hosts`."""
        if robot in self._robots:
            actors.end(self._robots.pop(robot).actor, self.places.pop(robot, None))

    def close(self) -> None:
        """See `Hosts`."""
        for robot in list(self._robots):
            self.end(robot)

    def _start(self, robot: int) -> Any:
        self._robots[robot] = RayRobot.start(
            partial(FleetRobot, self._assignments[robot]),
            num_cpus=0,
            max_restarts=0,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": actors.ONE_THREAD},
        )
        return self._robots[robot].place()

    def _ended(self, task: _Task, reference: Any | None) -> Any:
        import ray

        if reference is None:
            limit = START_LIMIT_S if task.starting else self._timeout_s
            return Lost(f"it took longer than {limit:g} s")
        try:
            return received(reference)
        except ray.exceptions.RayTaskError as error:
            return Lost(_said(error.cause))
        except Exception as error:
            return Lost(_said(error))


def _said(error: BaseException) -> str:
    """An error as one line of a report; Ray tells a long story of actors that died."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
