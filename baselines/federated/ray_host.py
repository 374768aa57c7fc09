"""Hosts in Ray actors: what the driver knows of one, where they run, and whose turn is next."""

import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from fleet_tools.baselines.federated.messages import decode, encode
from fleet_tools.baselines.federated.transport import LostRobot, RobotHost, one_line
from fleet_tools.errors import require_name
from fleet_tools.parallel import ray_workers
from fleet_tools.parallel.workers import START_LIMIT_S

Place = str | None
"""A resource of Ray that machines have; None where any machine will do."""

_SHARE = 0.001
"""Amount of the resource of a place that a host reserves: any number of hosts may share it."""


@dataclass(frozen=True)
class Gone:
    """Result of a host that has ended, or has to be."""

    reason: str


@dataclass(eq=False)
class RayHost:
    """The driver's view of a host. It is free, or asked for its location or for an answer.

    Attributes:
        actor: Handle of the actor.
        place: Its place.
        location: Where it runs; None until it has started.
        free_since: When it became free, s.
        reference: Ray's reference to what it was asked for; None while it is free.
        deadline: When that has to be there, s.
        limit_s: The time limit that led to the deadline.
        robot: The robot that it serves; None while it serves none.
        exchange: To which the robot's message belongs.
        ended: Whether it was ended although it served a robot.
    """

    actor: Any
    place: Place
    location: ray_workers.ActorLocation | None = None
    free_since: float = 0.0
    reference: Any = None
    deadline: float = 0.0
    limit_s: float = 0.0
    robot: int | None = None
    exchange: object = None
    ended: bool = False
    _call: Callable[[], Any] = lambda: None

    @classmethod
    def start(cls, place: Place, memory: float) -> Self:
        """Starts a host, on the cluster to which `ray.init` connected this process.

        Args:
            place: The Ray resource of the machines where it may run; None for all machines.
            memory: See `RobotHost`.
        """
        import ray

        actor = ray.remote(RobotHostActor).options(
            num_cpus=0,
            resources={} if place is None else {place: _SHARE},
            max_restarts=0,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": ray_workers.WORKER_VARIABLES},
        )
        host = cls(actor.remote(memory), place)
        host.ask_location()
        return host

    @property
    def free(self) -> bool:
        """Whether it may be asked for something."""
        return self.reference is None

    def ask_location(self) -> None:
        """Asks where it runs, which it answers once it has started."""
        self._ask(self.actor.location.remote, START_LIMIT_S)

    def serve(
        self, robot: int, exchange: object, assignment: str, message: Any, limit_s: float
    ) -> None:
        """Sends a robot's message.

        Args:
            robot: Number of the robot.
            exchange: To which the message belongs.
            assignment: The robot's assignment as JSON.
            message: The message, or Ray's reference to it.
            limit_s: Time limit of the answer.
        """
        self.robot, self.exchange = robot, exchange
        self._ask(partial(self.actor.answer.remote, assignment, message), limit_s)

    def result(self) -> ray_workers.ActorLocation | bytes | LostRobot | Gone | None:
        """Returns what it was asked for, or what went wrong, once it is done or beyond its limit.

        None: Ray did not reach it, which does not mean that it ended. It is asked again, as long as
        there is time.
        """
        import ray
        from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError, RayTaskError

        if self.ended:
            return Gone("it was ended")
        try:
            return ray.get(self.reference, timeout=0)
        except (GetTimeoutError, ActorUnavailableError):
            if time.monotonic() < self.deadline:
                self.reference = self._call()
                return None
            return Gone(f"it took longer than {self.limit_s:g} s")
        except RayTaskError as error:
            return LostRobot(one_line(error.cause))
        except RayError as error:
            return Gone(f"its process ended: {_reason(error)}")

    def rest(self) -> None:
        """Makes it free."""
        self.reference, self._call = None, lambda: None
        self.robot = self.exchange = None
        self.free_since = time.monotonic()

    def end(self) -> None:
        """Ends the actor, whatever it is doing."""
        ray_workers.end_actor(self.actor, self.location)

    def _ask(self, call: Callable[[], Any], limit_s: float) -> None:
        self._call, self.limit_s = call, limit_s
        self.deadline = time.monotonic() + limit_s
        self.reference = call()


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


def _reason(error: Exception) -> str:
    """Returns why an actor ended, in one line."""
    if getattr(error, "actor_init_failed", False):
        return str(error).strip().splitlines()[-1]  # of the traceback
    return one_line(error)


class Outbox:
    """Robots whose messages wait, by their place, and by the host that has them open.

    A free host takes first a robot that it has open itself, then one that no host has, and one of
    another host only if it is told to: opening a robot's data again takes longer than a short wait.
    """

    def __init__(self) -> None:
        # Of each place, robots by their host; None for those that no host has.
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
        """Lets any host take the robots of one that is gone."""
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
"""Resources of Ray itself, which say nothing of where a machine is; `node:ADDRESS` does."""


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
