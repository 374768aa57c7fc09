"""Robots behind Ray actors, in other processes or on other machines. Merging itself knows no Ray.

    ray.init()  # or `fleet_tools.parallel.cluster.connected`
    robots = [RayRobot.start(partial(make_robot, folder)) for folder in folders]
    merged = merge("fleet_merge", Fleet(symmetry, models, robots=robots))

`make_robot` runs in the actor: data are opened where they lie, and there is nothing to ask an actor
for but an answer as in `merging.wire`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.queries.data_holder import Robot
from fleet_tools.errors import FleetToolsError
from fleet_tools.parallel import actors


@dataclass(frozen=True)
class RayRobot:
    """A `merging.robots.Robot` whose questions and answers travel by Ray, and nothing else.

    Args:
        actor: The handle of an actor with a method `answer`; `start` makes one.
    """

    actor: Any

    @classmethod
    def start(cls, make: Callable[[], Robot], **options: Any) -> "RayRobot":
        """Starts an actor, on the cluster that `ray.init` has joined.

        Args:
            make: Called once, in the actor: opens the data and returns the robot that stays there.
            options: Where and with what it runs, as `ray.actor.ActorClass.options` has them, such
                as `resources={"robot_7": 1}`.
        """
        import ray

        return cls(ray.remote(_Host).options(**options).remote(make))

    def begin(self, message: bytes) -> Any:
        """Asks, and does not wait: the answer is Ray's reference, for `received`."""
        return self.actor.answer.remote(message)

    def place(self) -> Any:
        """Asks where the robot is (`parallel.actors.Place`), once it is there; a reference, too."""
        return self.actor.place.remote()

    def answer(self, message: bytes) -> bytes:
        """See `Robot`; waits for the actor.

        Raises:
            MessageError: The robot says so, or its actor is gone.
        """
        return received(self.begin(message))


def received(reference: Any) -> Any:
    """Waits for what a robot answers.

    Args:
        reference: Of the answer.

    Raises:
        FleetToolsError: The robot says so.
        MessageError: Its actor is gone.
    """
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        # A robot's own words, not the traceback that Ray wraps around them.
        if isinstance(error.cause, FleetToolsError):
            raise error.cause from None
        raise
    except ray.exceptions.RayActorError as error:
        raise MessageError(
            f"A robot does not answer, its actor is gone. Look at why it ended: {error}"
        ) from None


class _Host:
    """What runs in the actor."""

    def __init__(self, make: Callable[[], Robot]) -> None:
        self._robot = make()

    def place(self) -> actors.Place:
        return actors.here()

    def answer(self, message: bytes) -> bytes:
        return self._robot.answer(message)
