"""The program `python -m fleet_tools.assets import`, from a mesh file to an environment."""

import json
import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import trimesh
from support.foreign_shapes import hammer, moved
from support.processes import ROOT

import fleet_tools  # noqa: F401 - registers the environments
from fleet_tools.assets.__main__ import main
from fleet_tools.assets.model_description import MATERIALS
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.sim.catalog import load_model
from fleet_tools.studio.importing import convex_decomposition

KEYPOINTS = [
    *("--keypoint", "head=0.165,0,0.052"),
    *("--keypoint", "tail=-0.06,0,0"),
    *("--keypoint", "side=0.165,0,-0.018"),
]
HAMMER = ["--kind", "tool", "--family", "hammer", "--mass", "0.5", *KEYPOINTS]

CROWBAR = ROOT / "tests" / "data" / "crowbar.stl"

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def mesh(tmp_path: Path) -> Path:
    for library in ("coacd", "manifold3d", "fast_simplification"):
        pytest.importorskip(library)
    hammer().export(tmp_path / "mallet.stl")
    return tmp_path / "mallet.stl"


def imported(capsys: Capture, *arguments: str | Path) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["import", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: Capture, *arguments: str | Path) -> str:
    capsys.readouterr()
    try:
        code = main(["import", *map(str, arguments)])
    except SystemExit as error:
        code = error.code
    assert code == 2
    return " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.parametrize("suffix", ["stl", "obj", "ply", "glb"])
def test_every_format_gives_the_same_body(mesh, suffix, tmp_path, capsys):
    file = tmp_path / f"mallet.{suffix}"
    hammer().export(file)
    axes = ["--up", "z", "--scale", "mm"]  # the default of a GLB is y
    report = imported(capsys, file, *HAMMER, *axes, "--output", tmp_path)
    head, handle = 0.03 * 0.03 * 0.07, 0.24 * 0.024 * 0.026
    volume = head + handle - 0.03 * 0.024 * 0.026
    assert report["mass_kg"] == 0.5
    assert report["density_kg_m3"] == pytest.approx(0.5 / volume, rel=1e-4)
    x = (0.165 * head + 0.06 * handle - 0.165 * 0.03 * 0.024 * 0.026) / volume
    np.testing.assert_allclose(report["centre_of_mass_m"][:2], [x, 0], atol=1e-6)
    assert report["collision_pieces"] <= 8 and report["visual_triangles"] <= 2000
    assert report["warnings"] == []


def test_the_expert_drives_a_nail_with_it(mesh, tmp_path, capsys):
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
        force = max(force, np.linalg.norm(observation["end_effector_wrench"][3:]).item())
    assert info["outcome"] == "success"  # the nail's brake holds up to 40 N at least
    assert force > 40
    env.close()


def test_the_same_mesh_gives_the_same_bytes_and_an_edit_is_kept(mesh, tmp_path, capsys):
    arguments = [mesh, *HAMMER, "--output", tmp_path / "one"]
    folder = Path(imported(capsys, *arguments)["folder"])
    first = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    imported(capsys, *arguments)  # replaces the unedited folder
    imported(capsys, mesh, *HAMMER, "--output", tmp_path / "two")
    for root in (folder, tmp_path / "two" / "tools" / "hammer" / "mallet"):
        assert {p.name: p.read_bytes() for p in root.rglob("*") if p.is_file()} == first
    assert [path.name for path in folder.parent.iterdir()] == ["mallet"]

    labels = folder / "keypoints.yaml"
    labels.write_text(labels.read_text() + "# edited\n")
    assert main(["import", *map(str, arguments)]) == 1
    assert "keypoints.yaml" in capsys.readouterr().err
    assert labels.read_text().endswith("# edited\n")


def test_a_hand_on_the_wrong_side_or_end_is_warned_of(mesh, tmp_path, capsys):
    arguments = [mesh, *HAMMER, "--pieces", "4", "--output", tmp_path]
    right = imported(capsys, *arguments, "--grasp=0,0,0")
    assert right["warnings"] == []
    for grasp, words in (
        ("0,0,0,180,0,0", "tilt against the direction of use of the grasp .*180 deg; needed: at m"),
        ("0.165,0,0.03", "distance from the working end of the grasp .* 0 mm; needed: at least 10"),
        ("0,0,-0.1", "distance outside of the tool of the grasp 87 mm; needed: at most 10"),
        ("0,0,0,0,0,90", "width in the hand 240 mm; needed: 2 to 80 mm"),
    ):
        (warning, *_) = sorted(
            imported(capsys, *arguments, f"--grasp={grasp}")["warnings"],
            key=lambda each: not re.search(words, each),
        )
        assert re.search(words, warning) and "`grasp`" in warning, warning


def test_options_are_in_the_files(mesh, tmp_path, capsys):
    grasp = ["--grasp=-0.01,0,0.002,0,0,10", "--material", "brass", "--rigid"]
    report = imported(capsys, mesh, *HAMMER, *grasp, "--output", tmp_path)
    model = load_model(Path(report["folder"]), "tool")
    assert model.labels.grasp.translation_m == (-0.01, 0, 0.002)
    assert model.labels.grasp.rpy_deg == (0, 0, 10)
    assert model.labels.keypoints["tail"].position == (-0.06, 0, 0)
    drake = "{https://drake.mit.edu}"
    for collision in ET.parse(model.file).getroot().iter("collision"):
        texts = {e.tag.removeprefix(drake): e.text for e in collision.iter()}
        assert float(texts["mu_static"] or "nan") == MATERIALS["brass"].friction
        assert "rigid_hydroelastic" in texts and "hydroelastic_modulus" not in texts


def test_keypoints_may_be_given_in_the_frame_of_the_mesh(mesh, tmp_path, capsys):
    labels = ["--keypoint", "head=165,0,52", "--points-in", "mesh"]
    block = ["--kind", "object", "--family", "block", "--mass", "0.2", "--length", "0.12"]
    report = imported(capsys, mesh, *block, *labels, "--output", tmp_path)
    head = load_model(Path(report["folder"]), "object").labels.keypoints["head"].position
    # Half as large, and with the origin at the centre of the underside.
    np.testing.assert_allclose(head, ((165 - 60) / 2e3, 0, (52 + 18) / 2e3), atol=1e-9)


POINTS_PLY = b"""ply
format ascii 1.0
element vertex 1
property float x
property float y
property float z
end_header
0 0 0
"""


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.stl", b"", "is empty"),
        ("cut.stl", b"\0" * 90, "no triangles|cannot be read"),
        ("five.obj", b"v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0\n 0\nf 1 2 3\n", "cannot be read as OBJ"),
        ("text.obj", b"not a mesh", "no triangles|cannot be read"),
        ("points.ply", POINTS_PLY, "open3d is needed|no extent|has 1 point"),
        ("cut.glb", b"glTF\2\0\0\0", "cannot be read"),
        ("part.step", b"x", r"Unknown mesh format: 'step'.*Known: dae, glb"),
        ("wrong.obj", b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 9\n", "damaged|cannot be read"),
    ],
)
def test_a_damaged_file_is_refused_with_the_reason(name, content, message, tmp_path, capsys):
    (tmp_path / name).write_bytes(content)
    error = refused(capsys, tmp_path / name, *HAMMER, "--output", tmp_path / "out")
    assert re.search(message, error), error
    assert not (tmp_path / "out").exists()


# --- Surfaces that libraries do not expect -----------------------------------------------------


def fine_hammer(**changes: Any) -> trimesh.Trimesh:
    """Returns a hammer in m of many triangles, with changed vertices or faces."""
    mesh = trimesh.boolean.union(hammer().split(only_watertight=False), engine="manifold")
    for _ in range(2):
        mesh = mesh.subdivide()
    arrays = {"vertices": mesh.vertices / 1000, "faces": mesh.faces} | changes
    return trimesh.Trimesh(**arrays, process=False, validate=False)


def odd_meshes() -> dict[str, Any]:
    """Returns meshes with one defect each."""
    fine, rng = fine_hammer(), np.random.default_rng(0)
    vertices, faces = fine.vertices, fine.faces
    noise = 0.004 * rng.normal(size=vertices.shape)
    a_nan = np.where(np.arange(len(vertices))[:, None] == 5, np.nan, vertices)
    flat = np.vstack([faces, [[0, 0, 1], [2, 2, 2]], faces[:3]])
    return {
        "nan": fine_hammer(vertices=a_nan),
        "zero_areas": fine_hammer(faces=flat),
        "open": fine_hammer(faces=faces[:-150]),
        "disjoint": trimesh.util.concatenate([fine, moved(fine, 0, 0.1, 0)]),
        "crossing_itself": fine_hammer(vertices=vertices + noise),
        "inside_out": fine_hammer(faces=faces[:, ::-1]),
        "thrice": fine_hammer(faces=np.vstack([faces] * 3)),
        "a_point": fine_hammer(vertices=np.zeros_like(vertices)),
        "tiny": fine_hammer(vertices=vertices * 1e-12),
        "giant": fine_hammer(vertices=vertices * 1e30),
    }


@pytest.mark.parametrize("name", odd_meshes())
def test_an_odd_mesh_is_imported_or_refused_with_one_error(name, mesh, tmp_path, capsys):
    file = tmp_path / f"{name}.ply"
    odd_meshes()[name].export(file)
    code = main(
        ["import", str(file), *HAMMER, "--scale", "m", "--pieces", "4", "--output", str(tmp_path)]
    )
    said = capsys.readouterr().err
    assert code in (0, 2) and "Traceback" not in said
    assert (code == 0) == (tmp_path / "tools" / "hammer" / name / "model.sdf").exists()
    assert (name in ("a_point", "tiny", "giant")) == (code == 2), said


@pytest.mark.slow  # the next test is quick
def test_an_ordinary_mesh_on_which_coacd_aborted_is_imported(mesh, tmp_path, capsys):
    # Three bars that overlap; cuts of their union have edges of 1e-10 m.
    points = {"left": "0.086,0.014,0.18", "right": "0.086,-0.014,0.18", "heel": "0.03,0,0.16"}
    points |= {"tip": "0.086,0,0.18", "back": "0,0,-0.15"}
    options = [f"--keypoint={name}={point}" for name, point in points.items()]
    options += ["--kind", "tool", "--family", "pry_bar", "--mass", "0.8", "--scale", "mm"]
    report = imported(capsys, CROWBAR, *options, "--output", tmp_path)
    assert max(report["collision_deviation_m"].values()) <= 5e-4
    assert not any("coarser" in warning for warning in report["warnings"])


def end_process(*_: Any) -> None:
    os.abort()


def test_a_library_that_aborts_costs_fidelity_and_a_warning_tells(
    mesh, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(convex_decomposition, "_coacd", end_process)
    torus = trimesh.creation.torus(0.05, 0.01, major_sections=24, minor_sections=8)
    torus.export(tmp_path / "ring.stl")
    arguments = [tmp_path / "ring.stl", *HAMMER, "--scale", "m", "--output", tmp_path]
    report = imported(capsys, *arguments)
    (warning,) = [each for each in report["warnings"] if "coarser" in each]
    assert "CoACD ended with SIGABRT" in warning and "Remesh" in warning
    monkeypatch.undo()
    assert not any("coarser" in each for each in imported(capsys, *arguments)["warnings"])


def test_stages_are_told_on_stderr_with_the_elapsed_time(mesh, tmp_path, capsys):
    arguments = ["import", str(mesh), *HAMMER, "--scale", "mm", "--output", str(tmp_path)]
    assert main([*arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)
    times = [float(line.partition(" s: ")[0]) for line in err.splitlines() if " s: " in line]
    assert len(times) >= 5 and times == sorted(times)
    assert main([*arguments, "--quiet"]) == 0
    assert " s: " not in capsys.readouterr().err
