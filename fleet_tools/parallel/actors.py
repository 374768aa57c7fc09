"""Actors of Ray that may be stopped or stuck: where they are, and how they end all the same."""

import contextlib
import os
import signal
from typing import Any

ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "RAYON")
}
"""The environment of an actor that is to use one core; most libraries read it once, when loaded."""

Place = tuple[str, int]
"""Where an actor is: the node, and the process there."""


def here() -> Place:
    """Returns where this process is; an actor calls it."""
    import ray

    return ray.get_runtime_context().get_node_id(), os.getpid()


def end(actor: Any, place: Place | None) -> None:
    """Ends an actor, whatever it is at.

    Args:
        actor: Its handle.
        place: Where it is, if that is known.
    """
    import ray

    ray.kill(actor)
    node, process = place or (None, None)
    if node == ray.get_runtime_context().get_node_id():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)  # one that is stopped does not hear Ray
