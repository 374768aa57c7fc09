"""Workers in Ray actors with one thread each, on the cluster to which this process is connected."""

import signal
from collections.abc import Callable, Collection
from typing import Any

from fleet_tools.errors import FleetToolsError
from fleet_tools.parallel import actors
from fleet_tools.parallel.backend import Death, Done, Failure, Outcome
from fleet_tools.parallel.liveness import liveness_of
from fleet_tools.utils.disk_errors import disk_errors


class WorkerActor:
    """The actor: it makes the function that does a job, then calls it."""

    def start(self, make_work: Callable[[], Any]) -> Failure | actors.ActorLocation:
        """Makes the function, and returns where the worker runs."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled where jobs come from
        try:
            with disk_errors():
                self._work = make_work()
        except FleetToolsError as error:
            return Failure(error)
        return actors.location()

    def do(self, job: Any) -> Any:
        """Does a job."""
        try:
            with disk_errors():
                return self._work(job)
        except FleetToolsError as error:
            return Failure(error)


class RayWorker:
    """A worker in an actor.

    Args:
        actor: Handle of the actor.
        make_work: Makes the function that does a job.

    Attributes:
        reference: Ray's reference to what the worker was asked for last.
    """

    def __init__(self, actor: Any, make_work: Callable[[], Any]) -> None:
        self._actor, self._location = actor, None
        self._call: Callable[[], Any] = lambda: actor.start.remote(make_work)
        self.reference = self._call()

    def ask(self, job: Any) -> None:
        """See `Worker`."""
        self._call = lambda: self._actor.do.remote(job)
        self.reference = self._call()

    def ask_again(self) -> None:
        """Asks for the same, because Ray did not reach the worker, which may run on."""
        self.reference = self._call()

    def take(self, result: Any) -> Outcome:
        """Returns the outcome that a result stands for."""
        if isinstance(result, Failure):
            return result
        if self._location is None:
            self._location, result = result, None
        return Done(result)

    def end(self) -> None:
        """See `Worker`."""
        actors.end(self._actor, self._location)


class RayBackend:
    """Starts actors.

    Args:
        ray: The module, as `cluster.connected` yields it.
        make_work: Makes the function that does a job, in each worker; Ray must be able to pickle
            it.
    """

    def __init__(self, ray: Any, make_work: Callable[[], Any]) -> None:
        self._ray, self._make_work = ray, make_work
        environment = {"env_vars": actors.ONE_THREAD}
        options = {"num_cpus": 1, "max_restarts": 0, "runtime_env": environment}
        self._actors = ray.remote(**options)(WorkerActor)
        self._liveness = liveness_of(ray)

    def start(self) -> RayWorker:
        """See `Backend`."""
        return RayWorker(self._actors.remote(), self._make_work)

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
        outcomes = [(worker, self._outcome(worker)) for worker in ended]
        return [(worker, outcome) for worker, outcome in outcomes if outcome is not None]

    def _outcome(self, worker: RayWorker) -> Outcome | None:
        exceptions = self._ray.exceptions
        try:
            return worker.take(self._ray.get(worker.reference, timeout=0))
        except (exceptions.GetTimeoutError, exceptions.ActorUnavailableError):
            worker.ask_again()
            return None
        except exceptions.RayTaskError as error:  # unexpected; it holds the traceback
            return Failure(error)
        except exceptions.RayError as error:
            return Death(f"its worker died ({type(error).__name__})")

    def healthy(self) -> bool:
        """See `Backend`.

        Raises:
            LostClusterError: Ray's own processes died.
        """
        return self._liveness.await_answers()
