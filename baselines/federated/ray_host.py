"""Hosts in Ray actors: their state, their machine and their next robot."""

import time
from collections import Counter, deque
from collections.abc import Hashable, Sequence
from typing import Any

from fleet_tools.baselines.federated.messages import decode, encode
from fleet_tools.baselines.federated.transport import RobotHost
from fleet_tools.errors import require_name
from fleet_tools.parallel import ray_workers
from fleet_tools.parallel.backend import Death, Outcome
from fleet_tools.parallel.workers import START_LIMIT_S

Place = str | None
"""A Ray resource of machines; None where any machine will do."""

_SHARE = 0.001
"""Amount of the resource of a place that a host reserves: any number of hosts may share it."""


class RayHost(ray_workers.RayActor):
    """The server's view of a host: free, or asked for its location or for an answer.

    Args:
        place: The Ray resource of the machines where it may run; None for all machines.
        memory: See `RobotHost`.

    Attributes:
        place: Its place.
        free_since: When it became free, s.
        deadline: Time at which its answer is due, s.
        robot: The robot that it serves; None while it serves none.
        exchange: The exchange of the robot's message.
        ended: Whether it was ended although it served a robot.
    """

    def __init__(self, place: Place, memory: float) -> None:
        super().__init__(
            RobotHostActor,
            memory,
            num_cpus=0,
            resources={} if place is None else {place: _SHARE},
            scheduling_strategy="SPREAD",
        )
        self.place, self.ended = place, False
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
    """Robots with waiting messages, by their place, and by the host that has them open.

    A free host first takes its own open robots, then robots without a host. It takes another host's
    robot only on request, because reopening a robot's data takes longer than a short wait.
    """

    def __init__(self) -> None:
        # For each place, robots by their host; None for robots without one.
        self._queues: dict[Place, dict[Hashable | None, deque[int]]] = {}

    def put(self, robot: int, place: Place, host: Hashable | None = None) -> None:
        """Adds a robot behind the others of its host."""
        self._queues.setdefault(place, {}).setdefault(host, deque()).append(robot)

    def take(self, place: Place, host: Hashable, *, of_others: bool) -> int | None:
        """Removes the robot that is next for a free host, and returns it.

        Args:
            place: Place of the host.
            host: The host.
            of_others: Whether it may take a robot that another host has open.

        Returns:
            The robot; None if there is none for it.
        """
        queues = self._queues.get(place, {})
        longest = max(queues, key=lambda each: len(queues[each]), default=None)
        for each in (host, None, *([longest] if of_others else [])):
            if queues.get(each):
                return queues[each].popleft()
        return None

    def release(self, place: Place, host: Hashable) -> None:
        """Lets any host take the robots of a host that is gone."""
        queues = self._queues.get(place, {})
        if host in queues:
            queues.setdefault(None, deque()).extend(queues.pop(host))

    def drop(self, place: Place) -> list[int]:
        """Removes the robots of a place, and returns them."""
        return [robot for queue in self._queues.pop(place, {}).values() for robot in queue]

    def places(self) -> list[Place]:
        """Returns the places where robots wait."""
        return [place for place in self._queues if self.count(place)]

    def count(self, place: Place) -> int:
        """Returns the number of robots that wait at a place."""
        return sum(map(len, self._queues.get(place, {}).values()))


_OF_RAY = ("CPU", "GPU", "TPU", "memory", "object_store_memory", "node:__internal_head__")
"""Ray's own resources, which do not locate a machine; `node:ADDRESS` does."""


def place_cores() -> dict[str, int]:
    """Returns the number of cores of the machines at each place, at least one.

    Machines that Ray has lost do not count.
    """
    import ray

    cores: Counter[str] = Counter()
    for node in ray.nodes():
        if node["Alive"]:
            for name in node["Resources"]:
                if name not in _OF_RAY:
                    cores[name] += int(node["Resources"].get("CPU", 0))
    return {place: max(1, count) for place, count in cores.items()}


def require_places(places: Sequence[str]) -> None:
    """Checks that machines of the cluster have the resources of places.

    Raises:
        UnknownNameError: None has one of them.
    """
    known = place_cores() if places else {}
    for place in places:
        remedy = f"`ray start --resources '{{\"{place}\": 1}}'` gives it to a machine."
        require_name("place", place, known, remedy)
