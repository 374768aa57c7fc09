"""Connecting to Ray, where there is none."""

import socket
import sys

import pytest

from fleet_tools.errors import WorkersError
from fleet_tools.parallel.cluster import connected


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "localhost:{port}", "auto"])
def test_cluster_that_is_not_there_is_named_with_its_remedy(address, monkeypatch, tmp_path):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))  # where "auto" looks
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = address.format(port=closed.getsockname()[1])
        with pytest.raises(WorkersError, match="ray start --head"), connected(1, address):
            pass


def test_without_ray_this_machine_does_without_and_says_so(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    with connected(2, None) as ray:
        assert ray is None
    assert "This process works alone" in capsys.readouterr().err
    with pytest.raises(WorkersError, match="Ray cannot be imported"), connected(2, "auto"):
        pass
