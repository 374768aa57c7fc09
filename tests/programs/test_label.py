"""The program `fleet-tools label`: its page, its end, and what it refuses."""

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import trimesh
from support.processes import ROOT

from fleet_tools.label import main


@pytest.fixture
def mesh(tmp_path: Path) -> Path:
    pytest.importorskip("viser", reason="needs the extra browser")
    trimesh.creation.box((250, 20, 20)).export(tmp_path / "stick.stl")
    return tmp_path / "stick.stl"


def options(mesh: Path, *more: str) -> list[str]:
    return [str(mesh), "--family", "hammer", "--output", str(mesh.parent / "out"), *more]


@pytest.mark.parametrize(
    "ending", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_it_serves_a_page_until_a_signal_and_prints_one_object(mesh, ending):
    command = [sys.executable, "-m", "fleet_tools", "label", *options(mesh)]
    with subprocess.Popen(
        [*command, "--port", "0", "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        summary = json.loads(program.stdout.readline())
        with urllib.request.urlopen(summary["url"], timeout=60) as page:
            assert page.status == 200
        program.send_signal(ending)
        output, errors = program.communicate(timeout=60)
    assert (program.returncode, output) == (0, "")
    assert "Traceback" not in errors
    assert summary["url"].startswith("http://127.0.0.1:")
    assert summary["missing"] == ["head", "side", "tail", "hand", "mass, or material"]
    assert summary["labels"] == f"{summary['folder']}.labels.yaml"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{mesh}"], "a mesh needs --family and --output"),
        (["{folder}", "--family", "hammer"], "a folder of a model says that itself"),
        (["{mesh}", "--family", "hamer", "--output", "{folder}"], "Did you mean 'hammer'"),
        (["{folder}/none.stl", "--family", "hammer", "--output", "{folder}"], "There is no file"),
        (["{folder}"], "lacks keypoints.yaml"),
        (["{mesh}", "--family", "spoon", "--output", "{folder}"], "--keypoint-names NAME,NAME"),
        (["{mesh}", "--task", "hammer", "--family", "nail"], "the task says that itself: --family"),
        (["{mesh}", "--task", "hammer"], "without `assets` of its own needs --output"),
        (["{mesh}", "--task", "hamer"], "Unknown task: 'hamer'"),
        (["{mesh}", "--family", "a", "--keypoint-names", "bowl,no name"], "letters, digits"),
        (
            ["{mesh}", "--family", "a", "--keypoint-names", "tip,hand", "--output", "{folder}"],
            "A keypoint cannot be called hand",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_a_page_opens(mesh, capsys, arguments, said):
    given = [each.format(mesh=mesh, folder=mesh.parent) for each in arguments]
    try:
        code = main(given)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert said in capsys.readouterr().err
    assert list(mesh.parent.iterdir()) == [mesh]
