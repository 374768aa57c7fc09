"""A host in a Ray actor, and what the driver knows of it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from fleet_tools.baselines.federated.messages import decode, encode
from fleet_tools.baselines.federated.placement import Place
from fleet_tools.baselines.federated.transport import LostRobot, RobotHost, one_line
from fleet_tools.parallel import ray_workers
from fleet_tools.parallel.workers import START_LIMIT_S

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
            runtime_env={"env_vars": ray_workers.ONE_THREAD},
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
