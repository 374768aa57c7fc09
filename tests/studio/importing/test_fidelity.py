"""Collision geometry fits the mesh where the tool works: pads stay where they are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import trimesh
from hypothesis import given
from hypothesis import strategies as st
from support.foreign_models import TASKS, ForeignTool, foreign_tool, foreign_tools
from support.foreign_shapes import ball, box, cylinder, moved
from support.shares import few

from fleet_tools.assets.__main__ import main
from fleet_tools.assets.solids import Solid
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.studio.importing.collision_geometry import deviations, distance_outside
from fleet_tools.studio.importing.convex_decomposition import face_cut_parts
from fleet_tools.studio.importing.enclosed_body import (
    EnclosedBody,
    convex_hull,
    enclosed_body,
    volume,
)
from fleet_tools.studio.importing.repair import Shell, cleaned, repaired_shells

BLOCK = box((0.06, 0.04, 0.03))
CORNER = {"corner": (0.03, 0.02, 0.015)}

Capture = pytest.CaptureFixture[str]
Import = Callable[..., dict[str, Any]]


@pytest.fixture
def imported(tmp_path: Path, capsys: Capture) -> Import:
    """A function that imports a tool as a mesh of its own, and returns the report."""
    for library in ("coacd", "manifold3d", "fast_simplification"):
        pytest.importorskip(library)

    def run(tool: ForeignTool, mesh: trimesh.Trimesh, *options: str) -> dict[str, Any]:
        mesh.export(tmp_path / "mesh.stl")
        arguments = [str(tmp_path / "mesh.stl"), *tool.import_options(), *options]
        assert main(["import", *arguments, "--output", str(tmp_path), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def solid(mesh: trimesh.Trimesh) -> Solid:
    return Solid(np.array(mesh.vertices), np.array(mesh.faces))


def collision_solids(folder: str) -> list[Solid]:
    files = sorted((Path(folder) / "meshes").glob("*_collision_*.obj"))
    return [solid(trimesh.load_mesh(file, process=False)) for file in files]


def inverted(mesh: trimesh.Trimesh) -> trimesh.Trimesh:
    turned = mesh.copy()
    turned.invert()
    return turned


def plates(extents: tuple[float, float, float], thickness: float) -> list[trimesh.Trimesh]:
    """Returns six overlapping plates, the walls of a hollow box."""
    walls = []
    for k in range(3):
        sides, shift = list(extents), [0.0, 0.0, 0.0]
        sides[k], shift[k] = thickness, (extents[k] - thickness) / 2
        walls += [moved(box(sides), *(sign * x for x in shift)) for sign in (1, -1)]
    return walls


LOW, HIGH = (moved(box((0.06, 0.04, 0.02)), 0, 0, z) for z in (-0.005, 0.005))
"""They overlap in the middle of a block, whose hull is theirs."""
HOLE = moved(box((0.05, 0.03, 0.012)), 0, 0, 0.005)
"""In HIGH, and the upper side of LOW passes through it."""


@pytest.mark.parametrize(
    ("inside", "cavities"),
    [
        pytest.param([], 0, id="solid"),
        pytest.param([inverted(HOLE)], 1, id="cavity"),
        pytest.param([inverted(moved(ball(2, 0.007), 0.02, 0.01, 0.005))], 1, id="round cavity"),
        pytest.param([HOLE], 0, id="nested body"),
        pytest.param([inverted(HOLE), moved(box((0.03, 0.02, 0.01)), 0, 0, 0.005)], 1, id="both"),
        pytest.param([LOW], 0, id="twice"),
    ],
)
def test_what_is_inside_of_a_mesh_changes_no_deviation(inside, cavities):
    pytest.importorskip("manifold3d")
    whole = trimesh.util.concatenate([LOW, HIGH, *inside])
    assert isinstance(whole, trimesh.Trimesh)
    surface, _ = cleaned(np.array(whole.vertices), np.array(whole.faces))
    body, _ = enclosed_body(repaired_shells(surface)[0])
    assert len(body.cavities) == cavities
    found = deviations(body, (solid(LOW), solid(HIGH)), CORNER)
    assert found["corner"] == pytest.approx(0, abs=1e-9)


def test_the_walls_of_a_hollow_body_of_plates_are_no_surface_outside():
    pytest.importorskip("manifold3d")
    walls = [Shell(solid(wall), closed=True) for wall in plates((0.06, 0.04, 0.03), 0.004)]
    body, _ = enclosed_body(walls)
    (outer,) = body.outer
    (cavity,) = body.cavities
    assert volume(outer) == pytest.approx(BLOCK.volume)
    assert volume(cavity) == pytest.approx(-0.052 * 0.032 * 0.022)
    assert deviations(body, (solid(BLOCK),), CORNER)["corner"] == pytest.approx(0, abs=1e-9)


@given(st.floats(1e-4, 0.01))
@few(10)
def test_the_deviation_is_that_of_a_block_moved_out_or_in(amount):
    body, grown = EnclosedBody((solid(BLOCK),)), BLOCK.vertices * 1.0
    assert deviations(body, body.outer, CORNER)["corner"] == 0
    grown[:, 2] += np.sign(grown[:, 2]) * amount  # its upper side, and its lower
    larger = EnclosedBody((Solid(grown, np.array(BLOCK.faces)),))
    assert deviations(body, larger.outer, CORNER)["corner"] == pytest.approx(amount, rel=1e-6)
    assert deviations(larger, body.outer, CORNER)["corner"] == pytest.approx(amount, rel=1e-6)


def test_a_point_in_a_gap_looks_at_the_walls_of_the_gap():
    walls = [moved(box((0.04, 0.01, 0.02)), 0, y, 0) for y in (-0.025, 0.025)]
    body = EnclosedBody(tuple(map(solid, walls)))
    nearer = (solid(walls[0]), solid(moved(walls[1], 0, -0.002, 0)))
    assert deviations(body, nearer, {"middle": (0, 0, 0)})["middle"] == pytest.approx(0.002)


def test_cuts_along_faces_divide_a_jaw_exactly_and_no_convex_solid():
    pytest.importorskip("manifold3d")
    jaw = trimesh.boolean.difference(
        [box((0.06, 0.08, 0.014)), moved(box((0.04, 0.03, 0.1)), 0.02, 0, 0)]
    )
    parts = face_cut_parts(solid(jaw), 8, np.array([(0.01, 0.015, 0.0)]), 0.015)
    assert len(parts) == 3
    hulls = [convex_hull(part.vertices) for part in parts]
    assert sum(map(volume, parts)) == pytest.approx(jaw.volume)
    assert sum(volume(found) for found in hulls if found) == pytest.approx(jaw.volume)
    assert len(face_cut_parts(solid(ball(2, 0.03)), 8, np.zeros((0, 3)), 0.015)) == 1


@pytest.mark.parametrize(
    "name", ["cut_wrench", pytest.param("rounded_wrench", marks=pytest.mark.slow)]
)
def test_the_mouth_of_a_wrench_stays_open_and_the_report_tells(name, imported):
    tool = foreign_tool(name)
    whole = trimesh.boolean.union(list(tool.pieces), engine="manifold")
    report = imported(tool, whole)
    assert set(report["collision_deviation_m"]) == set(tool.keypoints)
    assert max(report["collision_deviation_m"].values()) < 1e-3
    assert not any("jaw" in warning for warning in report["warnings"])
    # Between the pads, 41.2 mm apart, a bar of 41 mm fits along the whole of their flat part.
    x, y = np.meshgrid(np.linspace(0.158, 0.176, 10), np.linspace(-0.0205, 0.0205, 42))
    bar = np.column_stack([x.ravel(), y.ravel(), np.zeros(x.size)])
    solids = collision_solids(report["folder"])
    assert min(distance_outside(point[None], solids) for point in bar) > 0


def twelve_parts() -> trimesh.Trimesh:
    """Returns twelve convex parts that overlap, of more triangles than are kept for cameras."""
    rod = moved(cylinder(0.012, 0.04, sections=96), 0, 0, 0, about="y", deg=90)
    parts = [moved(rod, x, 0, 0) for x in np.linspace(-0.07, 0.14, 7)]
    parts += [moved(cylinder(0.02, 0.03, sections=96), 0.165, 0, z) for z in (-0.04, -0.02, 0)]
    parts += [moved(cylinder(0.016, 0.03, sections=96), 0.165, 0, z) for z in (0.02, 0.04)]
    mesh = trimesh.util.concatenate(parts)
    assert isinstance(mesh, trimesh.Trimesh)
    return mesh


def test_overlapping_convex_parts_are_the_pieces(imported):
    report = imported(foreign_tool("round_hammer"), twelve_parts(), "--fidelity", "0.002")
    assert report["collision_pieces"] == 12
    assert report["visual_triangles"] <= 2000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*margin")
@pytest.mark.parametrize("tool", foreign_tools(), ids=lambda tool: tool.name)
def test_imported_foreign_tools_need_no_mending_and_end_in_no_error(tool, imported, recwarn):
    report = imported(tool, tool.mesh())
    env = gymnasium.make(TASKS[tool.family], tool=report["folder"])
    outcomes = [rollout(env, ExpertPolicy(env), seed=seed).outcome for seed in range(2)]
    assert "simulation_error" not in outcomes
    assert not [w for w in recwarn if issubclass(w.category, UserWarning)]
    env.close()
