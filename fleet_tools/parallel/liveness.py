"""Whether the processes of Ray that all others need still run.

Ray itself waits forever for a raylet that was killed, and may end the driver a minute after its
control store. Both listen on sockets, so that a refused connection shows their death at once.
"""

import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from fleet_tools.errors import LostClusterError

Probe = Callable[[], bool]
"""Returns whether a process answers."""

GRACE_S = 15.0
"""Time for which a process may not answer; Ray itself ends the driver after 60 s."""

EVERY_S = 2.0
"""Time between two looks."""

_CONNECT_S = 5.0


class Liveness:
    """Watches the processes of a cluster.

    Args:
        probes: How each process is asked, by its name in messages.
        clock: Returns the present time, s.
        sleep: Waits for a number of seconds.
    """

    def __init__(
        self,
        probes: Mapping[str, Probe],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._probes, self._clock, self._sleep = probes, clock, sleep
        self._answered = dict.fromkeys(probes, clock())
        self._looked = clock()

    def require(self) -> None:
        """Looks, at most every `EVERY_S`, whether all processes answer.

        Raises:
            LostClusterError: One has not answered for `GRACE_S`.
        """
        if self._clock() - self._looked >= EVERY_S:
            self._look()

    def await_answers(self) -> bool:
        """Waits until all processes answer; to be called before a lost worker counts as such.

        Returns:
            Whether all answered at once: otherwise the worker may have been lost with one of them.

        Raises:
            LostClusterError: One has not answered for `GRACE_S`.
        """
        at_once = answered = self._look()
        while not answered:
            self._sleep(EVERY_S)
            answered = self._look()
        return at_once

    def _look(self) -> bool:
        """Returns whether all processes answer now."""
        self._looked = now = self._clock()
        silent = [name for name, probe in self._probes.items() if not probe()]
        self._answered |= {name: now for name in self._probes if name not in silent}
        for name in silent:
            if now - self._answered[name] >= GRACE_S:
                raise LostClusterError(f"Ray's {name} has not answered for {GRACE_S:g} s")
        return not silent


def liveness_of(ray: Any) -> Liveness:
    """Returns what watches the cluster to which this process is connected.

    Args:
        ray: The module.
    """
    context = ray.get_runtime_context()
    host, _, port = context.gcs_address.rpartition(":")
    probes = {"control store": _listener(host, int(port))}
    for node in ray.nodes():
        if node["NodeID"] == context.get_node_id():
            address = node["NodeManagerAddress"], node["NodeManagerPort"]
            probes["raylet"] = _listener(*address)
    return Liveness(probes)


def _listener(host: str, port: int) -> Probe:
    def answers() -> bool:
        try:
            socket.create_connection((host.strip("[]"), port), timeout=_CONNECT_S).close()
        except OSError:
            return False
        return True

    return answers
