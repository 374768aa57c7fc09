"""The program, end to end: from a mesh file to an environment in which the model is felt."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import trimesh

import fleet_tools  # noqa: F401 - registers the environments
from fleet_tools.assets.__main__ import main
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.sim.catalog import load_model

POINTS = ["--keypoint", "head=0.165,0,0.052", "--keypoint", "tail=-0.06,0,0",
          "--keypoint", "side=0.165,0,-0.018"]  # fmt: skip
HAMMER = ["--kind", "tool", "--family", "hammer", "--mass", "0.5", *POINTS]


def hammer() -> trimesh.Trimesh:
    """A hammer in millimetres, of two parts that overlap, as drawn in a modelling program."""
    head = trimesh.creation.box((30, 30, 70))
    head.apply_translation((165, 0, 17))
    handle = trimesh.creation.box((240, 24, 26))
    handle.apply_translation((60, 0, 0))
    return trimesh.util.concatenate([head, handle])


@pytest.fixture
def mesh(tmp_path) -> Path:
    for library in ("coacd", "manifold3d", "fast_simplification"):
        pytest.importorskip(library)
    hammer().export(tmp_path / "mine.stl")
    return tmp_path / "mine.stl"


def imported(capsys, *arguments) -> dict:
    capsys.readouterr()
    assert main(["import", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *arguments) -> str:
    capsys.readouterr()
    try:
        code = main(["import", *map(str, arguments)])
    except SystemExit as error:
        code = error.code
    assert code == 2
    return capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize("form", ["stl", "obj", "ply", "glb"])
def test_every_format_gives_the_same_body(mesh, form, tmp_path, capsys):
    axes = ["--up", "z"]  # a GLB's y is up, unless it is said otherwise
    hammer().export(tmp_path / f"mine.{form}")
    arguments = [tmp_path / f"mine.{form}", *HAMMER, *axes, "--scale", "mm", "--output", tmp_path]
    report = imported(capsys, *arguments)
    head, handle = 0.03 * 0.03 * 0.07, 0.24 * 0.024 * 0.026
    volume = head + handle - 0.03 * 0.024 * 0.026
    assert report["mass_kg"] == 0.5
    assert report["density_kg_m3"] == pytest.approx(0.5 / volume, rel=1e-4)
    x = (0.165 * head + 0.06 * handle - 0.165 * 0.03 * 0.024 * 0.026) / volume
    np.testing.assert_allclose(report["centre_of_mass_m"][:2], [x, 0], atol=1e-6)
    assert report["collision_pieces"] <= 8 and report["visual_triangles"] <= 2000
    assert report["warnings"] == []


def test_an_environment_runs_with_it_and_feels_it(mesh, tmp_path, capsys):
    report = imported(capsys, mesh, *HAMMER, "--output", tmp_path)
    assert any("taken as mm" in note for note in report["notes"])
    assert any("united 2 overlapping parts" in note for note in report["notes"])
    env = gym.make("FleetTools/Hammer-v0", tool=report["folder"])
    observation, info = env.reset(seed=0)
    expert = ExpertPolicy(env)
    expert.reset()
    force = 0.0
    while info["outcome"] == "running":
        observation, _, _, _, info = env.step(expert.act(observation))
        force = max(force, np.linalg.norm(observation["end_effector_wrench"][3:]))
    assert info["outcome"] == "success"  # the nail's brake holds up to 40 N at least
    assert force > 40
    env.close()


def test_the_same_mesh_gives_the_same_bytes_and_an_edit_is_kept(mesh, tmp_path, capsys):
    arguments = [mesh, *HAMMER, "--output", tmp_path / "one"]
    folder = Path(imported(capsys, *arguments)["folder"])
    first = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    imported(capsys, *arguments)  # over its own, unedited folder
    imported(capsys, mesh, *HAMMER, "--output", tmp_path / "two")
    for root in (folder, tmp_path / "two" / "tools" / "hammer" / "mine"):
        assert {p.name: p.read_bytes() for p in root.rglob("*") if p.is_file()} == first
    assert [path.name for path in folder.parent.iterdir()] == ["mine"]

    labels = folder / "keypoints.yaml"
    labels.write_text(labels.read_text() + "# mine\n")
    assert main(["import", *map(str, arguments)]) == 1
    assert "keypoints.yaml" in capsys.readouterr().err and labels.read_text().endswith("# mine\n")


def test_what_is_said_is_written(mesh, tmp_path, capsys):
    grasp = ["--grasp=-0.01,0,0.002,0,0,10", "--material", "brass", "--modulus", "2e7"]
    report = imported(capsys, mesh, *HAMMER, *grasp, "--friction", "0.7", "--output", tmp_path)
    model = load_model(Path(report["folder"]), "tool")
    assert model.labels.grasp.translation_m == (-0.01, 0, 0.002)
    assert model.labels.grasp.rpy_deg == (0, 0, 10)
    assert model.labels.keypoints["tail"].position == (-0.06, 0, 0)
    drake = "{https://drake.mit.edu}"
    for collision in ET.parse(model.file).getroot().iter("collision"):
        said = {e.tag.removeprefix(drake): e.text for e in collision.iter()}
        assert (said["mu_static"], said["hydroelastic_modulus"]) == ("0.7", "20000000")


def test_points_may_be_given_as_the_mesh_has_them(mesh, tmp_path, capsys):
    points = ["--keypoint", "head=165,0,52", "--points-in", "mesh", "--mass", "0.2"]
    report = imported(capsys, mesh, "--kind", "object", "--family", "block", *points,
                      "--length", "0.12", "--output", tmp_path)  # fmt: skip
    head = load_model(Path(report["folder"]), "object").labels.keypoints["head"].position
    # Half as large, and standing on the middle of its underside.
    np.testing.assert_allclose(head, ((165 - 60) / 2e3, 0, (52 + 18) / 2e3), atol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--kind", "tool", "--family", "hammer", "--mass", "1"], r"--keypoint head=X,Y,Z.*side"),
        (["--kind", "tool", "--family", "hammer", *POINTS], r"--mass KG, --density.*steel"),
        ([*HAMMER, "--density", "1"], "contradict"),
        ([*HAMMER, "--keypoint", "head=1,2"], "must be 3 numbers"),
        ([*HAMMER, "--keypoint", "head"], "NAME=X,Y,Z"),
        ([*HAMMER, "--keypoint", "head=1,2,3"], "twice"),
        ([*HAMMER, "--mass", "nan"], "not finite"),
        ([*HAMMER, "--length", "900"], "--length METRES"),
        ([*HAMMER, "--mass", "900"], "more than any metal.*--length"),
        ([*HAMMER, "--name", "../x"], "letters, digits"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_written(
    arguments, named, mesh, tmp_path, capsys
):
    error = refused(capsys, mesh, *arguments, "--output", tmp_path / "out")
    assert re.search(named, error), error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("empty.stl", b"", "is empty"),
        ("cut.stl", b"\0" * 90, "no triangles|cannot be read"),
        ("text.obj", b"not a mesh", "no triangles|cannot be read"),
        ("points.ply", b"ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\n"
         b"property float y\nproperty float z\nend_header\n0 0 0\n", "no triangles"),
        ("cut.glb", b"glTF\2\0\0\0", "cannot be read"),
        ("part.step", b"x", r"no mesh format 'step'.*Known: glb"),
        ("wrong.obj", b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 9\n", "damaged|cannot be read"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_with_the_reason(name, content, named, tmp_path, capsys):
    (tmp_path / name).write_bytes(content)
    error = refused(capsys, tmp_path / name, *HAMMER, "--output", tmp_path / "out")
    assert re.search(named, error), error
    assert not (tmp_path / "out").exists()


def test_a_missing_library_is_named_with_the_line_that_installs_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "manifold3d", None)
    hammer().export(tmp_path / "mine.stl")
    error = refused(capsys, tmp_path / "mine.stl", *HAMMER, "--output", tmp_path / "out")
    assert re.search(r"manifold3d is needed to.*pip install .*\[import\]", error), error


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from fleet_tools.assets.__main__ import main\n"
        "try: main(['import', '--help'])\n"
        "except SystemExit: pass\n"
        "print({'pydrake', 'trimesh', 'scipy', 'coacd', 'manifold3d'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[-1] == "set()" and "--keypoint" in out.stdout
