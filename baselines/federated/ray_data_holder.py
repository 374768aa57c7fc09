"""Data holders in Ray actors, in other processes or on other machines. Merging itself needs no Ray.

    ray.init()  # or `fleet_tools.parallel.cluster.connected`
    holders = [RayDataHolder.start(partial(make_data_holder, folder)) for folder in folders]
    merged = merge("fleet_merge", MergeProblem(symmetry, models, data_holders=holders))

`make_data_holder` runs in the actor, so data are opened where they are stored, and an actor
sends nothing but answers as in `merging.queries.wire`, and its location.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.errors import FleetToolsError
from fleet_tools.parallel.ray_workers import ActorLocation, location

# An actor imports PyTorch only if its data holder needs it.
if TYPE_CHECKING:
    from fleet_tools.baselines.merging.queries.data_holder import DataHolder


@dataclass(frozen=True)
class RayDataHolder:
    """A `merging.queries.data_holder.DataHolder` whose messages are sent by Ray.

    Args:
        actor: Handle of an actor with the methods `answer` and `location`, as `start` makes it.
    """

    actor: Any

    @classmethod
    def start(cls, make: Callable[[], "DataHolder"], **options: Any) -> "RayDataHolder":
        """Starts an actor, on the cluster to which `ray.init` connected this process.

        Args:
            make: Called once, in the actor; opens the data and returns the data holder.
            options: Options of the actor, as `ray.actor.ActorClass.options` takes them, such as
                `resources={"robot_7": 1}`.
        """
        import ray

        return cls(ray.remote(_DataHolderActor).options(**options).remote(make))

    def begin(self, message: bytes) -> Any:
        """Sends a message, and returns Ray's reference to the answer at once; see `result_of`."""
        return self.actor.answer.remote(message)

    def location(self) -> Any:
        """Returns a reference to the `ActorLocation`, which is known once the actor has started."""
        return self.actor.location.remote()

    def answer(self, message: bytes) -> bytes:
        """Sends a message, and waits for the answer; see `DataHolder`.

        The message is sent again as long as Ray does not reach the actor, but takes it for alive.

        Raises:
            FleetToolsError: An error that the data holder raised.
            MessageError: The actor ended.
        """
        from ray.exceptions import ActorUnavailableError

        while True:
            with contextlib.suppress(ActorUnavailableError):
                return result_of(self.begin(message))


def result_of(reference: Any) -> Any:
    """Waits for the result of an actor's method, and returns it.

    Args:
        reference: Ray's reference to the result.

    Raises:
        FleetToolsError: An error that the data holder raised.
        MessageError: The actor ended.
        ActorUnavailableError: Ray's: it did not reach the actor, which may be asked again.
    """
    import ray
    from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

    try:
        return ray.get(reference)
    except ActorUnavailableError:
        raise
    except RayTaskError as error:
        # The error itself, not the traceback in which Ray wraps it.
        if isinstance(error.cause, FleetToolsError):
            raise error.cause from None
        raise
    except RayActorError as error:
        raise MessageError(
            f"A data holder does not answer, because its actor ended. Ray's reason: {error}"
        ) from None


class _DataHolderActor:
    """The actor."""

    def __init__(self, make: Callable[[], "DataHolder"]) -> None:
        self._data_holder = make()

    def location(self) -> ActorLocation:
        return location()

    def answer(self, message: bytes) -> bytes:
        return self._data_holder.answer(message)
