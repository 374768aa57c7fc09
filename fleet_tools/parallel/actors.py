"""Ray actors that may be stopped or stuck: where they run, and how they are ended regardless."""

import contextlib
import os
import signal
from typing import Any, NamedTuple

ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "RAYON")
}
"""Environment variables of an actor that is to use one core; most libraries read them once, when
they are loaded."""


class ActorLocation(NamedTuple):
    """Where an actor runs.

    Attributes:
        node: Identifier of the Ray node.
        process: Process identifier on that node.
    """

    node: str
    process: int


def location() -> ActorLocation:
    """Returns where this process runs; to be called by an actor."""
    import ray

    return ActorLocation(ray.get_runtime_context().get_node_id(), os.getpid())


def end(actor: Any, where: ActorLocation | None) -> None:
    """Ends an actor, whatever it is doing.

    Args:
        actor: Handle of the actor.
        where: Where it runs, if that is known.
    """
    import ray

    ray.kill(actor)
    if where is not None and where.node == ray.get_runtime_context().get_node_id():
        with contextlib.suppress(ProcessLookupError):
            os.kill(where.process, signal.SIGKILL)  # a stopped process does not react to Ray
