"""Workers in Ray actors with one thread each, on the cluster to which this process is connected.

Also whether the processes of Ray that all others need still run: Ray itself waits forever for a
raylet that was killed, and may end the driver a minute after its control store. Both listen on
sockets, so that a refused connection shows their death at once.
"""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

from fleet_tools.errors import LostClusterError, known_errors
from fleet_tools.parallel.backend import (
    WORKER_VARIABLES,
    Death,
    Done,
    JobError,
    Outcome,
    begin_alike,
)
from fleet_tools.utils.disk_errors import disk_errors
from fleet_tools.utils.imports import TRUSTED_MODULES

Probe = Callable[[], bool]
"""Returns whether a process answers."""

GRACE_S = 15.0
"""Time for which a process may not answer; Ray itself ends the driver after 60 s."""

EVERY_S = 2.0
"""Time between two looks."""

_CONNECT_S = 5.0


class ActorLocation(NamedTuple):
    """The node of an actor.

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


class WorkerActor:
    """The actor: it makes the function that does a job, then calls it."""

    def start(self, make_work: Callable[[], Any]) -> JobError | ActorLocation:
        """Makes the function, and returns where the worker runs."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled where jobs come from
        begin_alike()
        try:
            with disk_errors():
                self._work = make_work()
        except known_errors() as error:
            return JobError(error)
        return location()

    def do(self, job: Any) -> Any:
        """Does a job."""
        try:
            with disk_errors():
                return self._work(job)
        except known_errors() as error:
            return JobError(error)


@cache
def _remote(actor_class: type) -> Any:
    """Returns Ray's form of a class, which Ray exports once for all of its actors."""
    import ray

    return ray.remote(actor_class)


class RayActor:
    """The driver's view of an actor, which does one thing at a time.

    Args:
        actor_class: Class of the actor.
        arguments: Arguments of its constructor.
        options: Ray's options of the actor.

    Attributes:
        actor: Its handle.
        location: Where it runs; None until it has told that.
        reference: Ray's reference to what it was asked for; None while it was asked for nothing.
    """

    def __init__(self, actor_class: type, *arguments: Any, **options: Any) -> None:
        trusted = {TRUSTED_MODULES: os.environ.get(TRUSTED_MODULES, "")}  # also on other machines
        environment = {"env_vars": {**WORKER_VARIABLES, **trusted}}
        options |= {"max_restarts": 0, "runtime_env": environment}
        self.actor: Any = _remote(actor_class).options(**options).remote(*arguments)
        self.location: ActorLocation | None = None
        self.reference: Any = None
        self._call: Callable[[], Any] = lambda: None

    def call(self, method: str, *arguments: Any) -> None:
        """Asks it for something."""
        self._call = partial(getattr(self.actor, method).remote, *arguments)
        self.reference = self._call()

    def rest(self) -> None:
        """Makes it free."""
        self.reference, self._call = None, lambda: None

    def outcome(self) -> Outcome | None:
        """Returns its result or its error, once it is done.

        None: Ray did not reach it, which does not mean that it ended. It is asked again.
        """
        import ray
        from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError, RayTaskError

        try:
            result = ray.get(self.reference, timeout=0)
        except (GetTimeoutError, ActorUnavailableError):
            self.reference = self._call()
            return None
        except RayTaskError as error:  # it holds the traceback
            return JobError(error)
        except RayError as error:
            reason = f"{type(error).__name__}: {error}".strip().splitlines()
            # Of a constructor that failed, the last line of its traceback says why.
            return Death(reason[-1 if getattr(error, "actor_init_failed", False) else 0])
        if isinstance(result, JobError):
            return result
        if isinstance(result, ActorLocation):
            self.location = result
        return Done(result)

    def end(self) -> None:
        """Ends the worker at once."""
        import ray

        ray.kill(self.actor)
        if self.location and self.location.node == ray.get_runtime_context().get_node_id():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.location.process, signal.SIGKILL)  # stopped ones do not react to Ray


class RayWorker(RayActor):
    """A worker in an actor.

    Args:
        make_work: Makes the function that does a job.
    """

    def __init__(self, make_work: Callable[[], Any]) -> None:
        super().__init__(WorkerActor, num_cpus=1)
        self.call("start", make_work)

    def ask(self, job: Any) -> None:
        """See `Worker`."""
        self.call("do", job)


class RayBackend:
    """Starts actors.

    Args:
        ray: The module, as `cluster.connected` yields it.
        make_work: Makes the function that does a job, in each worker; Ray must be able to pickle
            it.
    """

    def __init__(self, ray: Any, make_work: Callable[[], Any]) -> None:
        self._ray, self._make_work = ray, make_work
        self._liveness = liveness_of(ray)

    def start(self) -> RayWorker:
        """See `Backend`."""
        return RayWorker(self._make_work)

    def wait(
        self, workers: Collection[RayWorker], timeout_s: float
    ) -> list[tuple[RayWorker, Outcome]]:
        """See `Backend`.

        Raises:
            LostClusterError: Ray's own processes died.
        """
        self._liveness.require()
        by_reference = {worker.reference: worker for worker in workers}
        references, _ = self._ray.wait(list(by_reference), num_returns=1, timeout=timeout_s)
        ended = [by_reference[reference] for reference in references]
        outcomes = [(worker, worker.outcome()) for worker in ended]
        return [
            (worker, Death(f"its worker died ({outcome.reason.partition(':')[0]})"))
            if isinstance(outcome, Death)
            else (worker, outcome)
            for worker, outcome in outcomes
            if outcome is not None
        ]

    def healthy(self) -> bool:
        """See `Backend`.

        Raises:
            LostClusterError: Ray's own processes died.
        """
        return self._liveness.await_answers()


# --- Whether Ray lives ----------------------------------------------------------------------


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
