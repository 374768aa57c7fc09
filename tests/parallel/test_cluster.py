"""The connection to Ray where there is no cluster, none that lets us in, or no Ray."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest
from support.processes import ROOT, run_command

from fleet_tools.errors import WorkersError
from fleet_tools.parallel import cluster
from fleet_tools.parallel.cluster import connected

CONNECT = """
import json, sys
from fleet_tools.errors import WorkersError
from fleet_tools.parallel.cluster import connected
try:
    with connected(1, sys.argv[1]) as ray:
        print(json.dumps(None))
except WorkersError as error:
    print(json.dumps(str(error)))
"""

OPEN = """
import json, os
import ray  # which would leave a token of its own
from fleet_tools.parallel.cluster import connected
with connected(1, None) as ray:
    address = ray.get_runtime_context().gcs_address
    print(json.dumps([address, os.environ["RAY_AUTH_TOKEN"]]), flush=True)
    input()
"""


def error_of(address: str, *, within: Sequence[str] = (), **variables: str) -> str | None:
    """Returns the error of another process that connects; None if there is none.

    Args:
        address: Address of the cluster.
        within: Command that runs another.
        variables: Its environment variables of Ray.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("RAY_")]:
            patch.delenv(name)
        finished = run_command(*within, sys.executable, "-c", CONNECT, address, **variables)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


def test_no_cluster_of_this_machine_is_named_with_its_remedy(tmp_path):
    """Ray looks for the processes of any cluster, so it gets process identifiers of its own."""
    pytest.importorskip("ray")
    alone = ["unshare", "--pid", "--fork", "--mount-proc"]
    if os.geteuid() != 0:
        alone += ["--user", "--map-root-user"]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"]).returncode != 0:
        pytest.skip("this machine does not allow namespaces of processes")
    error = error_of("auto", within=alone, RAY_TMPDIR=str(tmp_path))
    assert error is not None and "ray start --head" in error


@pytest.mark.slow
def test_a_cluster_that_asks_for_another_token_is_named_with_its_remedy(tmp_path):
    pytest.importorskip("ray")
    with subprocess.Popen(
        [sys.executable, "-c", OPEN],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        | {"HOME": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as cluster:
        try:
            assert cluster.stdout is not None
            address, token = json.loads(cluster.stdout.readline())
            mode = {"RAY_AUTH_MODE": "token", "RAY_NUM_REDIS_GET_RETRIES": "2"}  # soon tired
            assert error_of(address, RAY_AUTH_TOKEN=token, **mode) is None
            wrong = error_of(address, RAY_AUTH_TOKEN="a" * 64, **mode)
            none = error_of(address, RAY_NUM_REDIS_GET_RETRIES="2")
        finally:
            cluster.communicate("end\n")
    assert wrong and address in wrong and "gives the token of RAY_AUTH_TOKEN" in wrong
    assert none and address in none and "gives no token" in none
    assert not (tmp_path / ".ray").exists()


@pytest.mark.parametrize(
    ("given", "variable"),
    [("127.0.0.1:{port}", "auto"), ("localhost:{port}", "auto"), (None, "127.0.0.1:{port}")],
)
def test_absent_cluster_is_named_with_its_remedy(given, variable, monkeypatch):
    """It is that of the environment, unless another one is given."""
    pytest.importorskip("ray")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        monkeypatch.setenv("RAY_ADDRESS", variable.format(port=port))
        address = given and given.format(port=port)
        with (
            pytest.raises(WorkersError, match=rf":{port} .*ray start --head"),
            connected(1, address),
        ):
            pass


@pytest.mark.parametrize(
    "says", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n"]
)
def test_a_port_of_another_program_is_named_at_once(says):
    """Ray would wait for more than six minutes."""
    pytest.importorskip("ray")

    def answer() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(says)
            connection.recv(100)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        message = f"{address} is not Ray"
        with pytest.raises(WorkersError, match=message), connected(1, address):
            pass


@pytest.mark.parametrize("given", [None, "auto", "", "nonsense"])
@pytest.mark.parametrize("address", ["nonsense", "6379", ":6379", "head:", "head:0", "head:99999"])
def test_what_is_no_address_is_refused_before_anything_is_tried(given, address, monkeypatch):
    """For "auto", Ray takes the variable, too."""
    monkeypatch.setenv("RAY_ADDRESS", "head:6379" if given == "nonsense" else address)
    refused = given if given == "nonsense" else address
    with pytest.raises(WorkersError) as error, connected(1, given):
        pass
    assert f"{refused!r}{'' if given == 'nonsense' else ' (RAY_ADDRESS)'} is no" in str(error.value)
    assert "expected HOST:PORT, auto or local" in str(error.value)
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert cluster.is_running("head:6379") and not cluster.is_running("local")


@pytest.mark.parametrize("given", [None, "ray://head:10001"])
def test_ray_client_is_refused_with_the_way_that_works(given, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(WorkersError, match="ray job submit"), connected(1, given):
        pass


def test_without_ray_this_process_works_alone_and_reports_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    with connected(2, None) as ray:
        assert ray is None
    assert "This process works alone" in capsys.readouterr().err
    with pytest.raises(WorkersError, match="Ray cannot be imported"), connected(2, "auto"):
        pass
