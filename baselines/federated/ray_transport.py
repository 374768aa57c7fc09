"""Robots in Ray actors, one for each core. Each actor serves many robots in turn."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleet_merging.errors import MessageError
from fleet_tools.baselines.federated.messages import Answer, Assignment, Message, decode, encode
from fleet_tools.baselines.federated.ray_host import Outbox, RayHost
from fleet_tools.baselines.federated.transport import (
    MEMORY,
    Answers,
    LostClient,
    Report,
    loss_report,
    one_line,
)
from fleet_tools.errors import WorkersError
from fleet_tools.parallel.backend import Death, Done
from fleet_tools.parallel.ray_workers import ActorLocation, liveness_of
from fleet_tools.parallel.workers import POLL_S, TRIES

PATIENCE_S = 1.0
"""Time after which a host without work takes a robot that another one has open."""

CHECK_S = 5.0
"""Time without work after which a host must prove that it runs, before it gets a message."""

_INLINE = 100_000  # bytes of a message up to which Ray sends it with the call


class RayTransport:
    """Robots served by hosts: Ray actors on the cluster to which this process is connected.

    Hosts start when there are messages for them. They reserve no core, and Ray spreads them over
    the machines. A robot's messages go to the host that has its data open. A host without work for
    `PATIENCE_S` takes over robots of others.
    A host that dies or hangs loses the one robot that it serves, and is replaced. A robot that
    raises is lost alone. Where Ray does not reach a host for some time, the message is sent again:
    an answer depends only on the assignment and the message.

    Args:
        assignments: Assignments of the robots, by robot number.
        at_once: Number of hosts, and so of robots that work at the same time.
        timeout_s: Time limit of an answer.
        memory: Of each host, see `RobotHost`.
        report: Called with a line on each lost robot or machine.

    Raises:
        UnknownNameError: No machine has the resource of a place.
    """

    def __init__(
        self,
        assignments: Sequence[Assignment],
        *,
        at_once: int,
        timeout_s: float,
        memory: float = MEMORY,
        report: Report = lambda line: None,
    ) -> None:
        import ray

        self._assignments = assignments
        self._at_once, self._timeout_s = at_once, timeout_s
        self._memory, self._report = memory, report
        self._liveness = liveness_of(ray)
        self._hosts: list[RayHost] = []
        self._homes: dict[int, RayHost] = {}  # the host that was sent a robot's last message
        self._failed_starts: list[str] = []  # in a row
        self._late: list[int] = []
        self._lost_machines: set[str] = set()
        self._stored: tuple[Message, Any] | None = None

    @property
    def locations(self) -> dict[int, ActorLocation]:
        """Where robots were served last, by robot number; of hosts that still run."""
        return {
            robot: host.location
            for robot, host in self._homes.items()
            if host in self._hosts and host.location is not None
        }

    def exchange(
        self, messages: Mapping[int, Message], *, deadline_s: float | None = None
    ) -> Answers:
        """See `Transport`.

        Raises:
            WorkersError: No host starts.
            LostClusterError: Ray's own processes died.
        """
        exchange = _Exchange(messages)
        deadline = exchange.begun + (math.inf if deadline_s is None else deadline_s)
        self._prepare(exchange)
        while exchange.outbox.count() or any(host.exchange is exchange for host in self._hosts):
            left = deadline - time.monotonic()
            if left > 0:
                self._begin(exchange)
            for host in self._ended(min(POLL_S, max(left, 0.0)), all_of_them=left <= 0):
                answer = self._settle(host, exchange)
                if answer is not None:
                    yield answer
            if left <= 0:
                return

    def late(self) -> list[int]:
        """See `Transport`."""
        for host in self._ended(0.0, all_of_them=True):
            self._settle(host, None)
        late, self._late = self._late, []
        return late

    def end(self, robot: int) -> None:
        """See `Transport`. A host that serves the robot ends; otherwise it drops the robot."""
        host = self._homes.pop(robot, None)
        if host is None or host not in self._hosts:
            return
        if host.robot == robot:
            host.ended = True
            host.end()
        else:
            host.actor.forget.remote(self._assignments[robot].to_json())

    def close(self) -> None:
        """See `Transport`."""
        for host in self._hosts:
            host.end()
        self._hosts.clear()
        self._homes.clear()
        self._stored = None

    def _prepare(self, exchange: "_Exchange") -> None:
        """Sorts the messages, and asks hosts that had no work whether they still run."""
        self._failed_starts.clear()
        hosts = set(self._hosts)
        for robot in exchange.messages:
            home = self._homes.get(robot)
            exchange.outbox.put(robot, home if home in hosts else None)
        for host in self._hosts:
            if host.free and exchange.begun - host.free_since > CHECK_S:
                host.ask_location()

    def _begin(self, exchange: "_Exchange") -> None:
        """Gives work to free hosts, and starts more.

        Raises:
            WorkersError: No host starts.
        """
        now = time.monotonic()
        for host in self._hosts:
            if host.free:
                free_for = now - max(host.free_since, exchange.begun)
                robot = exchange.outbox.take(host, of_others=free_for > PATIENCE_S)
                if robot is not None:
                    assignment = self._assignments[robot].to_json()
                    message = self._with_call(exchange.messages[robot])
                    host.serve(robot, exchange, assignment, message, self._timeout_s)
                    self._homes[robot] = host
        if exchange.outbox.count() and not self._start_fails():
            starting = sum(not host.free and host.robot is None for host in self._hosts)
            wanted = exchange.outbox.count() - starting
            for _ in range(min(self._at_once - len(self._hosts), wanted)):
                self._hosts.append(RayHost(self._memory))

    def _start_fails(self) -> bool:
        """Whether the last hosts failed to start, while others run.

        Raises:
            WorkersError: No other host runs.
        """
        if len(self._failed_starts) <= TRIES:
            return False
        if not self._hosts:
            raise WorkersError(
                f"The processes of robots do not start: {self._failed_starts[-1]}. Fewer --workers "
                "need less memory; --workers 0 shows the error."
            )
        return True

    def _with_call(self, message: Message) -> Any:
        """Returns a message as bytes, or a reference to them: a message to many is stored once."""
        import ray

        if self._stored is None or self._stored[0] is not message:
            content = encode(message)
            self._stored = message, content if len(content) <= _INLINE else ray.put(content)
        return self._stored[1]

    def _ended(self, timeout_s: float, *, all_of_them: bool) -> list[RayHost]:
        """Waits, and returns a host that is done, or all, and the hosts that exceed their limit."""
        import ray

        self._liveness.require()
        busy = {host.reference: host for host in self._hosts if not host.free}
        if not busy:
            time.sleep(timeout_s)
            return []
        count = len(busy) if all_of_them else 1
        done, _ = ray.wait(list(busy), num_returns=count, timeout=timeout_s)
        now = time.monotonic()
        late = [each for each, host in busy.items() if host.deadline < now]
        return [busy[each] for each in dict.fromkeys([*done, *late])]

    def _settle(
        self, host: RayHost, present: "_Exchange | None"
    ) -> tuple[int, Answer | LostClient] | None:
        """Takes a host's result, and returns the part that the present exchange awaits."""
        robot, exchange = host.robot, host.exchange
        outcome = host.outcome()
        if outcome is None:
            return None
        if isinstance(outcome, Death):
            well = self._liveness.await_answers()
            reason = self._machine_loss(host) or outcome.reason
            self._remove(host, present)
            if robot is None:
                if host.location is None and well:
                    self._failed_starts.append(reason)
                return None
            if not well:  # the host may have died with a process of Ray, not from this message
                if present is not None and exchange is present:
                    present.outbox.put(robot)
                return None
            result = LostClient(reason)
        else:
            host.rest()
            if robot is None:  # it has told where it runs
                self._failed_starts.clear()
                return None
            if isinstance(outcome, Done):
                result = outcome.result
            else:
                result = LostClient(one_line(getattr(outcome.error, "cause", outcome.error)))
        if isinstance(result, LostClient):
            self._report(loss_report(robot, result))
        if exchange is present:
            return robot, self._decoded(robot, result)
        if not isinstance(result, LostClient):
            self._late.append(robot)
        return None

    def _decoded(self, robot: int, result: bytes | LostClient) -> Answer | LostClient:
        if isinstance(result, LostClient):
            return result
        try:
            return decode(result)
        except MessageError as error:
            self._report(loss_report(robot, lost := LostClient(str(error))))
            return lost

    def _remove(self, host: RayHost, present: "_Exchange | None") -> None:
        if host in self._hosts:
            self._hosts.remove(host)
        host.end()
        if present is not None:
            present.outbox.release(host)

    def _machine_loss(self, host: RayHost) -> str | None:
        """Returns a message if the machine of a host is lost, and reports it once."""
        import ray

        lost = {
            node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if not node["Alive"]
        }
        if host.location is None or host.location.node not in lost:
            return None
        address = lost[host.location.node]
        if host.location.node not in self._lost_machines:
            self._lost_machines.add(host.location.node)
            self._report(f"Machine {address} is lost.")
        return f"its machine {address} is lost"


@dataclass(eq=False)
class _Exchange:
    """One exchange of messages."""

    messages: Mapping[int, Message]
    outbox: Outbox = field(default_factory=Outbox)
    begun: float = field(default_factory=time.monotonic)
