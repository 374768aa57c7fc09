"""The program `fleet-tools label` serves a page until a signal ends it."""

import signal
import urllib.request

import pytest
import trimesh
from support.processes import serving_program


@pytest.mark.parametrize(
    "ending", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_it_serves_a_page_until_a_signal_and_prints_one_object(ending, tmp_path):
    pytest.importorskip("viser", reason="needs the extra browser")
    trimesh.creation.box((250, 20, 20)).export(tmp_path / "stick.stl")
    given = [str(tmp_path / "stick.stl"), "--family", "hammer", "--output", str(tmp_path / "out")]
    with (
        serving_program("label", *given, ending=ending) as summary,
        urllib.request.urlopen(summary["url"], timeout=60) as page,
    ):
        assert page.status == 200
    assert summary["url"].startswith("http://127.0.0.1:")
    assert summary["missing"] == ["head", "side", "tail", "hand", "mass, or material"]
    assert summary["labels"] == f"{summary['folder']}.labels.yaml"
