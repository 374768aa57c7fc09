"""The connection to Ray where there is no cluster, or no Ray."""

import socket
import sys
from pathlib import Path

import psutil
import pytest

from fleet_tools.errors import WorkersError
from fleet_tools.parallel.cluster import connected


def local_processes() -> set[str]:
    """Returns the names of all processes of this machine."""
    return {process.info["name"] for process in psutil.process_iter(["name"])}


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "localhost:{port}", "auto"])
def test_absent_cluster_is_named_with_its_remedy(
    address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    pytest.importorskip("ray")
    if address == "auto" and "gcs_server" in local_processes():
        pytest.skip("a Ray cluster runs on this machine, to which Ray would connect")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))  # where "auto" looks
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = address.format(port=closed.getsockname()[1])
        with pytest.raises(WorkersError, match="ray start --head"), connected(1, address):
            pass


@pytest.mark.parametrize("given", [None, "{address}"])
def test_the_cluster_of_the_environment_is_meant_unless_another_is_given(
    given: str | None, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("ray")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", "auto" if given else address)
        given = given and given.format(address=address)
        with pytest.raises(WorkersError, match=address), connected(1, given):
            pass


@pytest.mark.parametrize("given", [None, "ray://head:10001"])
def test_ray_client_is_refused_with_the_way_that_works(
    given: str | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(WorkersError, match="ray job submit"), connected(1, given):
        pass


def test_without_ray_this_process_works_alone_and_reports_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "ray", None)
    with connected(2, None) as ray:
        assert ray is None
    assert "This process works alone" in capsys.readouterr().err
    with pytest.raises(WorkersError, match="Ray cannot be imported"), connected(2, "auto"):
        pass
