"""A SuperLink and SuperNodes of Flower on this machine, with TLS and authenticated nodes."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.processes import ROOT

FLOWER_PYTHON = os.environ.get("FLEET_TOOLS_FLOWER_PYTHON")
if FLOWER_PYTHON is None and find_spec("flwr"):
    import sys

    FLOWER_PYTHON = sys.executable

needs_flower = pytest.mark.skipif(
    FLOWER_PYTHON is None,
    reason="needs FLEET_TOOLS_FLOWER_PYTHON, the Python of an environment with Flower",
)


def free_port() -> int:
    """Returns a port on which nothing listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@dataclass
class Network:
    """A SuperLink."""

    folder: Path
    port: int
    stack: ExitStack
    nodes: list[subprocess.Popen] = field(default_factory=list)

    def flwr(self, *arguments: str, timeout_s: float = 300) -> str:
        """Runs a command of Flower, and returns what it prints."""
        command = [_program("flwr"), *arguments]
        finished = subprocess.run(
            command,
            env=_variables(self.folder),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd=self.folder,
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout

    def add_node(self, name: str, config: str) -> subprocess.Popen:
        """Registers a new SuperNode's key, starts it, and returns its process."""
        key = self.folder / name
        make_key = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(key)]
        subprocess.run(make_key, check=True)
        self.flwr("supernode", "register", f"{key}.pub", "tests")
        node = self.start_node(name, config)
        self.nodes.append(node)
        return node

    def start_node(self, name: str, config: str) -> subprocess.Popen:
        """Starts a SuperNode whose key is registered."""
        return _start(
            self.stack,
            self.folder,
            name,
            "flower-supernode",
            *("--superlink", f"127.0.0.1:{self.port}"),
            *("--root-certificates", "ca.pem"),
            *("--auth-supernode-private-key", name),
            *("--port", str(free_port())),
            *("--node-config", config),
        )

    def run(self, app: Path, options: str, timeout_s: float) -> str:
        """Runs an app with options to its end, and returns its log."""
        command = ("run", str(app), "tests", "--stream", "--run-config", options)
        return self.flwr(*command, timeout_s=timeout_s)


@contextmanager
def network(folder: Path) -> Iterator[Network]:
    """Starts a SuperLink, and ends it and its SuperNodes."""
    folder.mkdir(parents=True)
    _make_certificates(folder)
    port = free_port()
    (folder / "config.toml").write_text(
        f'[superlink]\ndefault = "tests"\n[superlink.tests]\naddress = "127.0.0.1:{port}"\n'
        f'root-certificates = "{folder / "ca.pem"}"\n'
    )
    with ExitStack() as stack:
        link = _start(
            stack,
            folder,
            "superlink",
            "flower-superlink",
            *("--ssl-ca-certfile", "ca.pem"),
            *("--ssl-certfile", "server.pem", "--ssl-keyfile", "server.key"),
            *("--port", str(port)),
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
        )
        wait_for(lambda: _listens(port) or link.poll() is not None, 300)
        assert link.poll() is None, (folder / "superlink.log").read_text()
        yield Network(folder, port, stack)


def wait_for(happened: Any, limit_s: float) -> None:
    """Waits until something is true."""
    end = time.monotonic() + limit_s
    while not happened():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.1)


def end_tree(process: subprocess.Popen) -> None:
    """Kills a process and all that it started."""
    try:
        parent = psutil.Process(process.pid)
        tree = [*parent.children(recursive=True), parent]
    except psutil.NoSuchProcess:
        tree = []
    for each in tree:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait(60)


def _make_certificates(folder: Path) -> None:
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384"]
    new += ["-nodes", "-days", "365"]
    authority = ["-subj", "/CN=Fleet", "-keyout", "ca.key", "-out", "ca.pem"]
    authority += ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    server = ["-CA", "ca.pem", "-CAkey", "ca.key", "-subj", "/CN=server", "-keyout", "server.key"]
    server += ["-out", "server.pem", "-addext", "basicConstraints=critical,CA:FALSE"]
    server += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    for more in (authority, server):
        subprocess.run([*new, *more], check=True, cwd=folder, capture_output=True)


def _program(name: str) -> str:
    return str(Path(str(FLOWER_PYTHON)).parent / name)


def _variables(folder: Path) -> dict[str, str]:
    binaries = str(Path(str(FLOWER_PYTHON)).parent)
    return {
        **os.environ,
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "FLWR_HOME": str(folder),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "OMP_NUM_THREADS": "1",
    }


def _start(
    stack: ExitStack, folder: Path, name: str, program: str, *arguments: str
) -> subprocess.Popen:
    log = stack.enter_context((folder / f"{name}.log").open("a"))
    process = subprocess.Popen(
        [_program(program), *arguments],
        cwd=folder,
        env=_variables(folder),
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    stack.callback(end_tree, process)
    return process


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0
