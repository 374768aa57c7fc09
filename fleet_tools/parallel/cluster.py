"""The connection to Ray: a cluster of this machine alone, or one that is running already."""

import contextlib
import logging
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fleet_tools.errors import LostClusterError, WorkersError, shown
from fleet_tools.parallel.interrupts import immediate_interrupt
from fleet_tools.utils import machine

# Imported with a count of workers, and not for `--help`.
if TYPE_CHECKING:
    import psutil

_WORKER_BYTES = 500e6  # memory of a worker with cameras


def default_count() -> int:
    """Returns the number of workers for which this machine has cores and memory, at least one."""
    return max(
        1, min(int(machine.available_cores()), int(machine.available_memory() // _WORKER_BYTES))
    )


def worker_count(ray: Any, given: int | None) -> int:
    """Returns the number of workers on the cluster to which this process is connected.

    Args:
        ray: The module, as `connected` yields it.
        given: The number that a user gave; None for as many as all machines of the cluster have
            cores.
    """
    return max(1, int(ray.cluster_resources().get("CPU", 1))) if given is None else given


def is_running(address: str | None) -> bool:
    """Returns whether there is a cluster to work on, instead of this machine alone.

    Args:
        address: As a user gave it, see `workers.run`.

    Raises:
        WorkersError: The address is one of Ray Client.
    """
    if _cluster_address(address) is not None:
        return True
    return address is None and "ray" in sys.modules and sys.modules["ray"].is_initialized()


@contextlib.contextmanager
def connected(cores: int | None, address: str | None) -> Iterator[Any]:
    """Yields the module `ray`, connected, or None if Ray does not run on this machine.

    Args:
        cores: Number of cores that a cluster of this machine alone uses; None for as many as have
            memory for a worker, see `default_count`.
        address: Address of a running cluster; None for the one to which this process is connected,
            or else for the one of the variable RAY_ADDRESS. Without these, or with "local", it
            is a new one that ends with the context.

    Raises:
        WorkersError: There is no cluster at the address, it asks for another token, or it is one of
            Ray Client.
    """
    address = _cluster_address(address)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # no telemetry
    os.environ.setdefault("RAY_worker_niceness", "0")  # the user waits for the workers
    os.environ["RAY_DEDUP_LOGS_SKIP_REGEX"] = ".*"  # stdout is ours, also when a worker dies
    if address is None:
        _keep_private()
    try:
        import ray
    except ImportError as error:
        reason = f"Ray cannot be imported ({error}). Install ray."
        if address is not None:
            raise WorkersError(f"{reason} {_remedy(address)}") from error
        _work_alone(reason)
        yield None
        return
    if ray.is_initialized():
        yield ray
        return
    logging.getLogger("ray").setLevel(logging.CRITICAL)  # our errors report what matters
    options: dict[str, Any] = {"configure_logging": False, "log_to_driver": False}
    if address is None:
        cores = default_count() if cores is None else cores
        options |= {"address": "local", "num_cpus": cores, "include_dashboard": False}
    else:
        _require_listener(address)
        options["address"] = address
    try:
        with immediate_interrupt():  # nothing is in progress yet, and a start may take a minute
            ray.init(**options)
    except BaseException as error:
        ray.shutdown()  # what has started already
        if not isinstance(error, Exception):
            raise
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        if address is None:
            _work_alone(f"Ray does not start ({reason}).")
            yield None
            return
        if "Version mismatch" in reason:
            raise WorkersError(
                f"The Ray cluster at {address} has different versions than this process "
                f"({reason}). Install the same version of Ray and of Python on all machines."
            ) from error
        if address == "auto" and isinstance(error, ConnectionError):
            raise WorkersError(
                f"Found no Ray cluster on this machine. {_remedy(address)}"
            ) from error
        raise WorkersError(
            f"Something listens at {address}, but this process cannot join it as a Ray cluster "
            f"({reason}). {_token_remedy()}"
        ) from error
    orphans = []
    try:
        yield ray
    except LostClusterError:
        orphans = _processes_of_ray()
        raise
    finally:
        ray.shutdown()
        _kill(orphans)


def _cluster_address(given: str | None) -> str | None:
    """Returns the address of a running cluster; None for a cluster of our own."""
    variable = os.environ.get("RAY_ADDRESS")
    # For "auto", Ray takes the variable, too.
    address = variable or given if given in (None, "", "auto") else given
    source = " (RAY_ADDRESS)" if variable and address is variable else ""
    if address is None or address in ("", "local"):
        return None
    if address.startswith("ray://"):
        raise WorkersError(
            f"{address}{source} is an address of Ray Client, which is not supported. Start the "
            "program on a machine of the cluster, or by `ray job submit`, with --ray-address auto "
            "or the HOST:PORT that `ray start --head` printed."
        )
    host, _, port = address.rpartition(":")
    if address != "auto" and not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise WorkersError(
            f"{shown(address)}{source} is not an address of a Ray cluster: expected HOST:PORT, "
            f"auto or local. {_remedy(address)}"
        )
    return address


def _processes_of_ray() -> "list[psutil.Process]":
    """Returns the processes of a cluster of our own; after a loss, some would go on for minutes."""
    import psutil

    servers = [
        child for child in psutil.Process().children() if child.name() in ("raylet", "gcs_server")
    ]
    return [each for server in servers for each in (server, *server.children(recursive=True))]


def _kill(processes: "list[psutil.Process]") -> None:
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _keep_private() -> None:
    """Lets a cluster that Ray starts serve this machine and this user only.

    Ray reads the first two variables when it is imported, and passes them on to its processes; if
    the caller has imported it before, it listens as it does by default. The token is read later:
    without one, Ray would leave its own in the home folder, for which clusters that are started
    there afterwards would ask.
    """
    if not os.environ.get("RAY_AUTH_TOKEN_PATH"):
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    if "ray" in sys.modules:
        return
    # Where several machines are no choice, Ray listens on 127.0.0.1 instead of on all addresses.
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ.setdefault("RAY_AUTH_MODE", "token")


def _token_remedy() -> str:
    """Says what to do if a cluster asks for another token than this process gives, or for one."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "token":
        return (
            "This process gives the token of RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or "
            "~/.ray/auth_token, the first that there is. Give the one that the cluster was started "
            "with."
        )
    return (
        "This process gives no token, and the cluster may ask for one: `ray start --head` does so "
        "wherever there is a file ~/.ray/auth_token, which any program with Ray may have left. "
        "Set RAY_AUTH_MODE=token here and on all machines, with the head's token in RAY_AUTH_TOKEN "
        "or in that file; or delete the file, and start the cluster again."
    )


def _work_alone(reason: str) -> None:
    print(f"{reason} This process works alone, as with --workers 0.", file=sys.stderr)


def _require_listener(address: str) -> None:
    """Checks that a port is open and speaks gRPC; Ray itself would wait for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    encrypted = os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), timeout=5)
    except OSError as error:
        raise WorkersError(f"Nothing answers at {address} ({error}). {_remedy(address)}") from error
    answer = b""
    with connection, contextlib.suppress(OSError):
        connection.sendall(_HTTP2_PREFACE + _EMPTY_SETTINGS)
        answer = connection.recv(len(_EMPTY_SETTINGS), socket.MSG_WAITALL)
    if answer[3:4] != _EMPTY_SETTINGS[3:4] and not encrypted:
        raise WorkersError(
            f"The program that listens at {address} is not Ray: it does not speak gRPC. "
            f"{_remedy(address)}"
        )


_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_EMPTY_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""First bytes of a client and a server of gRPC (RFC 9113, sections 3.4 and 6.5)."""


def _remedy(address: str) -> str:
    return (
        f"`ray start --head` starts a cluster and prints the address to give instead of {address}; "
        "with --ray-address local, this machine works alone."
    )
