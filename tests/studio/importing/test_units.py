"""Units and axes of mesh files: the same shape is the same model, however its file says it."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trimesh
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from support.foreign_shapes import hammer
from support.mesh_files import wedge
from trimesh.exchange.dae import export_collada

from fleet_tools.assets.__main__ import main
from fleet_tools.assets.families import family_names, find_family
from fleet_tools.assets.usual_sizes import unusual, usual_size
from fleet_tools.errors import ConfigError
from fleet_tools.sim.mesh_reading import file_axes, to_model_frame
from fleet_tools.studio.importing.importer import PlacedMesh, place_mesh
from fleet_tools.studio.importing.mesh_file import read_mesh
from fleet_tools.studio.importing.settings import ScaleSettings
from fleet_tools.studio.labelling.subjects import MeshSubject

pytest.importorskip("collada")

TO_Z = {  # COLLADA 1.4.1, <up_axis>: right, up and in of the three kinds of axes
    "X_UP": np.array([[0, -1, 0], [0, 0, -1], [1, 0, 0]]),
    "Y_UP": np.array([[1, 0, 0], [0, 0, -1], [0, 1, 0]]),
    "Z_UP": np.eye(3),
}
UNITS = {"inch": 0.0254, "mm": 0.001, "cm": 0.01, "m": 1.0, "foot": 0.3048}
REFERENCE = wedge()  # m, z up

Capture = pytest.CaptureFixture[str]


def write_dae(file: Path, mesh: trimesh.Trimesh, asset: str, node: str = "") -> Path:
    """Writes a mesh, whose coordinates are those of the file, with an asset and a node's motion."""
    text = export_collada(mesh).decode().replace("<up_axis>Y_UP</up_axis>", asset)
    file.write_text(text.replace("<instance_geometry", f"{node}<instance_geometry"))
    return file


def in_file(mesh: trimesh.Trimesh, meter: float, up: str) -> trimesh.Trimesh:
    """Returns a mesh, m and z up, in other coordinates."""
    return trimesh.Trimesh(mesh.vertices @ TO_Z[up] / meter, mesh.faces, process=False)


def placed(file: Path, **scale: Any) -> PlacedMesh:
    settings = ScaleSettings(**scale)
    return place_mesh(read_mesh(file), "tool", "of_a_user", settings, file_axes(file).up, "keep")


def bounds(vertices: np.ndarray) -> np.ndarray:
    return np.array([vertices.min(axis=0), vertices.max(axis=0)])


@given(
    meter=st.one_of(st.sampled_from([*UNITS.values()]), st.floats(1e-6, 1e3)),
    up=st.sampled_from([*TO_Z]),
    turn=st.tuples(*[st.floats(-180, 180)] * 3),
    grown=st.floats(0.01, 100),
    point=st.tuples(*[st.floats(-0.1, 0.1)] * 3),
)
def test_the_same_shape_and_points_in_any_unit_and_axes_are_the_same(
    meter, up, turn, grown, point, tmp_path_factory
):
    file = tmp_path_factory.mktemp("dae") / "x.dae"
    there = in_file(REFERENCE, meter, up)
    R = Rotation.from_euler("xyz", turn, degrees=True).as_matrix() * grown
    there.vertices = there.vertices @ np.linalg.inv(R).T  # which a node of the scene undoes
    numbers = np.eye(4)
    numbers[:3, :3] = R
    node = f"<matrix>{' '.join(f'{x:.17g}' for x in numbers.ravel())}</matrix>"
    write_dae(file, there, f'<unit name="own" meter="{meter!r}"/><up_axis>{up}</up_axis>', node)
    found = placed(file)
    np.testing.assert_allclose(
        bounds(found.surface.vertices), bounds(REFERENCE.vertices), atol=3e-6
    )
    p_file = TO_Z[up].T @ np.array(point) / meter  # --points-in mesh
    np.testing.assert_allclose(found.placement.point(tuple(p_file)), point, atol=1e-9)
    np.testing.assert_allclose(found.placement.inverse(np.array(point)), p_file, rtol=1e-6)
    drawn = to_model_frame(file)[:3, :3] @ p_file  # a visual mesh of a model lies there, too
    np.testing.assert_allclose(drawn, point, atol=1e-9)


def test_the_scale_that_is_given_takes_the_place_of_the_files_own(tmp_path):
    there = in_file(REFERENCE, 0.0254, "Z_UP")
    file = write_dae(tmp_path / "x.dae", there, '<unit meter="0.0254"/><up_axis>Z_UP</up_axis>')
    own, same, other = placed(file), placed(file, scale=0.0254), placed(file, scale=0.0127)
    np.testing.assert_array_equal(own.surface.vertices, same.surface.vertices)
    np.testing.assert_allclose(own.surface.vertices, 2 * other.surface.vertices)
    assert "the file says its unit, inch (0.0254 m)" in own.notes[-1]
    assert "in place of the file's own unit, inch" in other.notes[-1]
    long = placed(file, length=0.1)
    assert np.ptp(long.surface.vertices, axis=0).max() == pytest.approx(0.1)
    subject = MeshSubject(file, "tool", "hammer", tmp_path)  # as the page labels it
    labels = subject.initial()
    np.testing.assert_allclose(
        bounds(subject.placed(labels).surface.vertices), bounds(own.surface.vertices), atol=1e-9
    )
    page = subject.placed(labels).placement
    np.testing.assert_allclose(page.point((1.0, 2.0, 3.0)), np.array([1, 2, 3]) * 0.0254)


@pytest.mark.parametrize(
    ("asset", "unit", "up"),
    [
        ("", None, "y"),
        ("<unit name='inch' meter='0.0254'/>", 0.0254, "y"),
        ('<unit\n  name="a &lt; b" meter = "2.54e-2"/>', 0.0254, "y"),
        ('<!-- <unit meter="1000"/> --><unit name="mm" meter="0.001"/>', 0.001, "y"),
        ('<unit name="meter"/><up_axis> X_UP </up_axis>', 1.0, "x"),
        (f"<contributor><comments>{'x' * 30_000}</comments></contributor>"
         '<unit meter="0.001"/><up_axis>Z_UP</up_axis>', 0.001, "z"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_unit_and_axes_are_read_wherever_the_file_says_them(asset, unit, up, encoding, tmp_path):
    nested = '<node><asset><unit meter="7"/><up_axis>X_UP</up_axis></asset></node>'
    file = tmp_path / "x.dae"
    head = f'<?xml version="1.0" encoding="{encoding}"?><c:COLLADA xmlns:c="urn:x" xmlns="urn:x">'
    file.write_bytes(f"{head}<asset>{asset}</asset>{nested}</c:COLLADA>".encode(encoding))
    axes = file_axes(file)
    assert (axes.unit, axes.up) == (unit, up)


@pytest.mark.parametrize("meter", ["0", "-1", "nan", "inf", "1e300", "0,0254", "", "inch"])
def test_a_unit_that_is_no_length_is_refused_by_name(meter, tmp_path):
    file = write_dae(tmp_path / "x.dae", REFERENCE, f'<unit meter="{meter}"/>')
    with pytest.raises(ConfigError, match=rf'<unit meter="{re.escape(meter)}">.*Correct it'):
        read_mesh(file)
    write_dae(file, REFERENCE, "<up_axis>W_UP</up_axis>")
    with pytest.raises(ConfigError, match=r"W_UP.*X_UP, Y_UP or Z_UP"):
        read_mesh(file)


@pytest.mark.parametrize("suffix", ["stl", "obj", "ply", "off", "glb"])
def test_other_formats_say_their_unit_by_their_standard_or_not_at_all(suffix, tmp_path):
    file = tmp_path / f"x.{suffix}"
    REFERENCE.export(file)
    says_it = suffix == "glb"
    assert (file_axes(file).unit, file_axes(file).up) == ((1.0, "y") if says_it else (None, "z"))
    assert ("the file says its unit" in placed(file).notes[-1]) == says_it


def imported(file: Path, capsys: Capture, meter: float, *options: str) -> dict[str, Any]:
    """Imports a hammer with points in the mesh's coordinates; returns the report."""
    points = {"head": (0.165, 0, 0.052), "side": (0.165, 0, -0.018), "tail": (-0.06, 0, 0)}
    to_file = TO_Z[f"{file_axes(file).up.upper()}_UP"].T / meter
    labels = []
    for name, point in points.items():
        labels += ["--keypoint", f"{name}=" + ",".join(f"{x:.9g}" for x in to_file @ point)]
    code = main([
        "import", str(file), "--kind", "tool", "--family", "hammer", "--name", "mine", *labels,
        "--points-in", "mesh", "--material", "steel", "--output", str(file.parent / "out"),
        "--pieces", "4", "--json", *options,
    ])  # fmt: skip
    assert code == 0
    return json.loads(capsys.readouterr().out)


def test_a_hammer_in_inches_is_the_hammer_in_metres(tmp_path, capsys):
    pytest.importorskip("manifold3d")
    reports = []
    for up, meter in (("Z_UP", 1.0), ("Y_UP", 0.0254), ("X_UP", 0.001)):
        file = tmp_path / f"{up}.dae"
        asset = f'<unit meter="{meter}"/><up_axis>{up}</up_axis>'
        write_dae(file, in_file(hammer().apply_scale(0.001), meter, up), asset)
        reports.append(imported(file, capsys, meter))
        assert reports[-1]["warnings"] == []
    first, *others = reports
    for other in others:
        for key in ("extents_m", "mass_kg", "centre_of_mass_m", "collision_deviation_m"):
            ours, theirs = first[key], other[key]
            ours, theirs = (list(x.values()) if isinstance(x, dict) else x for x in (ours, theirs))
            np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=3e-6)
    small = imported(tmp_path / "Y_UP.dae", capsys, 0.0254, "--scale", "mm")
    (size, mass) = small["warnings"][:2]
    assert re.search(r"side is 9\.45 mm.*104 to 608 mm; --scale inch would make it 240 mm", size)
    assert re.search(r"mass is \S+e-05 kg.*its size is the cause", mass), mass


def test_two_parts_of_an_object_have_one_unit(tmp_path, capsys):
    base, lid = tmp_path / "base.stl", tmp_path / "lid.dae"
    REFERENCE.export(base)
    write_dae(lid, REFERENCE, '<unit meter="0.0254"/>')
    words = "--kind object --family chest --mass 1 --joint revolute --limits 0,90"
    words += f" --keypoint back=0,0,0 --moving {lid} --output {tmp_path / 'out'}"
    assert main(["import", str(base), *words.split()]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert re.search(r"unit 0.0254 m, y up.*no unit, z up.*--scale and --up", error), error


def test_an_error_in_a_model_of_an_unusual_size_names_the_size(tmp_path, capsys):
    file = tmp_path / "x.stl"
    trimesh.creation.box((9.0, 2.0, 0.1)).export(file)  # inches
    arguments = "--kind tool --family spatula --scale mm --mass 0.1 --keypoint edge=0,0,0"
    assert main(["import", str(file), *arguments.split(), "--output", str(tmp_path / "out")]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert re.search(
        "likely cause is its size: the longest side is 9 mm.*--scale inch would make it 229", error
    )


@pytest.mark.parametrize("family", family_names())
def test_models_that_ship_and_random_ones_have_a_usual_size(family):
    kind, found = find_family(family).kind, find_family(family)
    usual = usual_size(kind, family)
    assert usual.length[0] < usual.typical_length < usual.length[1]
    for k in range(5):
        model = found.build(found.sample(np.random.default_rng(k)), "one")
        corners = [p.solid.vertices + link.origin for link in model.links for p in link.parts]
        length = float(np.ptp(np.concatenate(corners), axis=0).max())
        assert unusual(kind, family, length, model.mass) == []
        for factor in (0.0254, 0.001, 1000.0):
            assert len(unusual(kind, family, factor * length, factor**3 * model.mass)) == 2
