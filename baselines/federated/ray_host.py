"""Hosts in Ray actors: their state, their machine and their next robot."""

import time
from collections import deque
from collections.abc import Hashable
from typing import Any

from fleet_tools.baselines.federated.messages import decode, encode
from fleet_tools.baselines.federated.transport import RobotHost
from fleet_tools.parallel import ray_workers
from fleet_tools.parallel.backend import Death, Outcome
from fleet_tools.parallel.workers import START_LIMIT_S


class RayHost(ray_workers.RayActor):
    """The server's view of a host: free, or asked for its location or for an answer.

    Args:
        memory: See `RobotHost`.

    Attributes:
        free_since: When it became free, s.
        deadline: Time at which its answer is due, s.
        robot: The robot that it serves; None while it serves none.
        exchange: The exchange of the robot's message.
        ended: Whether it was ended although it served a robot.
    """

    def __init__(self, memory: float) -> None:
        super().__init__(RobotHostActor, memory, num_cpus=0, scheduling_strategy="SPREAD")
        self.ended = False
        self.free_since = self.deadline = self._limit_s = 0.0
        self.robot: int | None = None
        self.exchange: object = None
        self.ask_location()

    @property
    def free(self) -> bool:
        """Whether it can take a request."""
        return self.reference is None

    def ask_location(self) -> None:
        """Asks for its machine, which it answers once it has started."""
        self._ask(START_LIMIT_S, "location")

    def serve(
        self, robot: int, exchange: object, assignment: str, message: Any, limit_s: float
    ) -> None:
        """Sends a robot's message.

        Args:
            robot: Number of the robot.
            exchange: The exchange of the message.
            assignment: The robot's assignment as JSON.
            message: The message, or Ray's reference to it.
            limit_s: Time limit of the answer.
        """
        self.robot, self.exchange = robot, exchange
        self._ask(limit_s, "answer", assignment, message)

    def outcome(self) -> Outcome | None:
        """See `RayActor`; asks again as long as there is time."""
        if self.ended:
            return Death("it was ended")
        outcome = super().outcome()
        if outcome is None and time.monotonic() >= self.deadline:
            return Death(f"it took longer than {self._limit_s:g} s")
        if isinstance(outcome, Death):
            return Death(f"its process ended: {outcome.reason}")
        return outcome

    def rest(self) -> None:
        """Makes it free."""
        super().rest()
        self.robot = self.exchange = None
        self.free_since = time.monotonic()

    def _ask(self, limit_s: float, method: str, *arguments: Any) -> None:
        self.deadline, self._limit_s = time.monotonic() + limit_s, limit_s
        self.call(method, *arguments)


class RobotHostActor:
    """The actor: a host that repeats its last answer, if Ray lost it on the way."""

    def __init__(self, memory: float) -> None:
        self._host = RobotHost(memory)
        self._last: tuple[str, bytes, bytes] | None = None

    def location(self) -> ray_workers.ActorLocation:
        """Returns where it runs."""
        return ray_workers.location()

    def answer(self, assignment: str, message: bytes) -> bytes:
        """See `RobotHost`."""
        if self._last is None or self._last[:2] != (assignment, message):
            self._last = None
            answer = encode(self._host.answer(assignment, decode(message)))
            self._last = assignment, message, answer
        return self._last[2]

    def forget(self, assignment: str) -> None:
        """See `RobotHost`."""
        self._last = None
        self._host.forget(assignment)


class Outbox:
    """Robots with waiting messages, by the host that has them open.

    A free host first takes its own open robots, then robots without a host. It takes another host's
    robot only on request, because reopening a robot's data takes longer than a short wait.
    """

    def __init__(self) -> None:
        # Robots by their host; None for robots without one.
        self._queues: dict[Hashable | None, deque[int]] = {}

    def put(self, robot: int, host: Hashable | None = None) -> None:
        """Adds a robot behind the others of its host."""
        self._queues.setdefault(host, deque()).append(robot)

    def take(self, host: Hashable, *, of_others: bool) -> int | None:
        """Removes the robot that is next for a free host, and returns it.

        Args:
            host: The host.
            of_others: Whether it may take a robot that another host has open.

        Returns:
            The robot; None if there is none for it.
        """
        longest = max(self._queues, key=lambda each: len(self._queues[each]), default=None)
        for each in (host, None, *([longest] if of_others else [])):
            if self._queues.get(each):
                return self._queues[each].popleft()
        return None

    def release(self, host: Hashable) -> None:
        """Lets any host take the robots of a host that is gone."""
        if host in self._queues:
            self._queues.setdefault(None, deque()).extend(self._queues.pop(host))

    def count(self) -> int:
        """Returns the number of robots that wait."""
        return sum(map(len, self._queues.values()))
