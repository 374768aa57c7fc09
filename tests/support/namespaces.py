"""Several machines on one: network namespaces joined by a switch, with a Ray cluster over them.

Each machine has its own network, so that its processes reach those of others only over its link,
and its own home folder and temporary files of Ray. All share the file system. Nothing is added to
the network of this machine, other clusters are out of reach, and what a test has left is ended
with the context, or, if the test was killed, by the next one.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from support.processes import ROOT, running_process

_PREFIX = "fleet-tools"
_PORT = 6379
_STORE_BYTES = 100_000_000  # of objects, on each machine


@dataclass(frozen=True)
class Machine:
    """One of the machines."""

    namespace: str
    switch: str
    number: int
    home: Path
    environment: dict[str, str]

    @property
    def ip(self) -> str:
        """Address in the network of the machines."""
        return f"10.11.12.{self.number}"

    def command(self, *command: str) -> list[str]:
        """Returns the command line that runs a command on this machine."""
        return ["ip", "netns", "exec", self.namespace, *command]

    def run(self, *command: str) -> str:
        """Runs a command on this machine, and returns what it prints."""
        finished = subprocess.run(
            self.command(*command),
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert finished.returncode == 0, f"{command}: {finished.stdout}{finished.stderr}"
        return finished.stdout

    def running(self, *command: str) -> AbstractContextManager[subprocess.Popen[str]]:
        """Runs a command on this machine while the context lasts."""
        return running_process(self.command(*command), environment=self.environment)

    def ray(self, *arguments: str) -> str:
        """Runs the program `ray` on this machine."""
        return self.run(sys.executable, "-m", "ray.scripts.scripts", *arguments)

    def start_node(self, head: "Machine", *options: str) -> None:
        """Starts Ray with one core, as a node of a cluster or as its head."""
        where = (
            ["--head", f"--port={_PORT}", "--include-dashboard=false"]
            if head.number == self.number
            else [f"--address={head.address}"]
        )
        self.ray(
            "start",
            *where,
            f"--node-ip-address={self.ip}",
            "--num-cpus=1",
            f"--object-store-memory={_STORE_BYTES}",
            f"--temp-dir={self.home}",
            "--disable-usage-stats",
            *options,
        )

    @property
    def address(self) -> str:
        """Address of the cluster whose head this machine is."""
        return f"{self.ip}:{_PORT}"

    def actors(self) -> list[str]:
        """Returns the names of the actors that run on this machine, and their present methods."""
        names = []
        for process in _processes(self.namespace):
            with contextlib.suppress(psutil.NoSuchProcess):
                names.append(" ".join(psutil.Process(process).cmdline()).strip())
        agents = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
        return [name for name in names if name.startswith("ray::") and name not in agents]

    def kill(self) -> None:
        """Kills all processes of this machine, as if its power failed."""
        _kill_processes(self.namespace)

    def set_link(self, up: bool) -> None:
        """Cuts or mends the link at the switch; the machine itself keeps its address."""
        _ip("-n", self.switch, "link", "set", f"port{self.number}", "up" if up else "down")


def require_namespaces() -> None:
    """Skips a test where namespaces cannot be made."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces are made by root only")
    if shutil.which("ip") is None:
        pytest.skip("the program ip (package iproute2) is not installed")
    made = subprocess.run(["ip", "netns", "add", f"{_PREFIX}-{os.getpid()}-try"], text=True)
    if made.returncode != 0:
        pytest.skip("this machine does not allow network namespaces")
    _delete(f"{_PREFIX}-{os.getpid()}-try")


@contextlib.contextmanager
def machines(count: int, **environment: str) -> Iterator[list[Machine]]:
    """Yields machines that reach each other, without any processes."""
    _delete_remains()
    switch = f"{_PREFIX}-{os.getpid()}-switch"
    # Short, because the paths of Ray's sockets may have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix=f"ft-{os.getpid()}-"))
    made: list[Machine] = []
    try:
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for number in range(1, count + 1):
            home = folder / str(number)
            home.mkdir()
            inherited = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
            own = {"HOME": str(home), "PYTHONPATH": str(ROOT), **environment}
            name = f"{_PREFIX}-{os.getpid()}-{number}"
            made.append(Machine(name, switch, number, home, inherited | own))
            _plug_in(made[-1])
        yield made
    finally:
        for machine in made:
            _delete(machine.namespace)
        _delete(switch)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def ray_machines(count: int, **environment: str) -> Iterator[list[Machine]]:
    """Yields machines that form a Ray cluster with one core each; the first is its head."""
    with machines(count, **environment) as made:
        for machine in made:
            machine.start_node(made[0])
        deadline = time.monotonic() + 60
        while made[0].ray("status", "--address", made[0].address).count(" node_") < count:
            assert time.monotonic() < deadline, "not all machines have joined the cluster"
        yield made


def _plug_in(machine: Machine) -> None:
    """Makes the namespace of a machine, and its link to the switch."""
    port = f"port{machine.number}"
    _ip("netns", "add", machine.namespace)
    _ip("-n", machine.namespace, "link", "set", "lo", "up")
    link = ["type", "veth", "peer", "name", port, "netns", machine.switch]
    _ip("-n", machine.namespace, "link", "add", "eth0", *link)
    _ip("-n", machine.namespace, "addr", "add", f"{machine.ip}/24", "dev", "eth0")
    _ip("-n", machine.namespace, "link", "set", "eth0", "up")
    _ip("-n", machine.switch, "link", "set", port, "master", "bridge", "up")


def _delete_remains() -> None:
    """Deletes what tests left that were killed."""
    for line in _ip("netns", "list").splitlines():
        owner = re.match(rf"{_PREFIX}-(\d+)-\S+", line)
        if owner and not psutil.pid_exists(int(owner[1])):
            _delete(owner[0])
    for folder in Path(tempfile.gettempdir()).glob("ft-*-*"):
        owner = re.match(r"ft-(\d+)-", folder.name)
        if owner and not psutil.pid_exists(int(owner[1])):
            shutil.rmtree(folder, ignore_errors=True)


def _delete(namespace: str) -> None:
    """Deletes a namespace, after killing its processes."""
    if not Path("/run/netns", namespace).exists():
        return
    _kill_processes(namespace)
    _ip("netns", "del", namespace)


def _kill_processes(namespace: str) -> None:
    """Kills all processes of a namespace, also those that are started meanwhile."""
    deadline = time.monotonic() + 30
    while found := _processes(namespace):
        assert time.monotonic() < deadline, f"processes {found} of {namespace} do not end"
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)


def _processes(namespace: str) -> list[int]:
    return [int(process) for process in _ip("netns", "pids", namespace).split()]


def _ip(*arguments: str) -> str:
    """Runs the program `ip`, and returns what it prints."""
    finished = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    assert finished.returncode == 0, f"ip {' '.join(arguments)}: {finished.stderr}"
    return finished.stdout
