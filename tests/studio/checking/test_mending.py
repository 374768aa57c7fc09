"""Mended models have no upright sides, and are otherwise the same."""

import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import trimesh
from hypothesis import given
from hypothesis import strategies as st
from pydrake.multibody.plant import MultibodyPlant
from support.folders import contents
from support.shares import few

from fleet_tools.assets import solids
from fleet_tools.assets.__main__ import main
from fleet_tools.errors import ConfigError
from fleet_tools.sim.contact_shapes import sides_with_margin, welded_groups
from fleet_tools.sim.resting_faces import LEAST_LEAN
from fleet_tools.studio.checking import mending
from fleet_tools.studio.checking.general_rules import least_lean, measure_model
from fleet_tools.studio.checking.mending import mend
from fleet_tools.studio.checking.program import load, read_model

INERTIAL = """<inertial><mass>0.1</mass><inertia><ixx>1e-4</ixx><iyy>1e-4</iyy><izz>1e-4</izz>
</inertia></inertial>"""
AUTO = '<inertial auto="true"><density>700</density></inertial>'
PROPERTIES = """<drake:proximity_properties><drake:compliant_hydroelastic/>
<drake:hydroelastic_modulus>1e7</drake:hydroelastic_modulus>
<drake:mesh_resolution_hint>0.02</drake:mesh_resolution_hint></drake:proximity_properties>"""
BOX = "<box><size>0.06 0.04 0.02</size></box>"
CYLINDER = "<cylinder><radius>0.03</radius><length>0.02</length></cylinder>"
MESH = """<mesh><uri>block.obj</uri><scale>0.5 0.5 0.25</scale><drake:declare_convex/></mesh>"""
SHAPES = (BOX, CYLINDER, MESH)


@pytest.fixture(scope="module", autouse=True)
def _in_this_process() -> Iterator[None]:
    """Loads models here alone, which is faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mending, "first_load_problem", lambda _: None)
        yield


def write(folder: Path, *shapes: tuple[str, str], inertial: str = INERTIAL) -> Path:
    """Writes a model of one link with shapes at poses, and returns its folder."""
    folder.mkdir(exist_ok=True)
    parts = [
        f'<collision name="part {k}"><pose>{pose}</pose>\n<geometry>{shape}</geometry>\n'
        f'{PROPERTIES}</collision><visual name="v{k}"><geometry>{shape}</geometry></visual>'
        for k, (pose, shape) in enumerate(shapes)
    ]
    (folder / "model.sdf").write_text(
        '<?xml version="1.0"?>\n<!-- é <collision> -->\n'
        '<sdf version="1.11" xmlns:drake="https://drake.mit.edu">\n<model name="own">'
        f'<link name="body">\n  {inertial}\n{"".join(parts)}</link></model></sdf>\n'
    )
    (folder / "keypoints.yaml").write_text(
        "family: own\nkind: object\nkeypoints:\n  tip: {link: body, position: [0, 0, 0.005]}\n"
    )
    if any(shape == MESH for _, shape in shapes):
        trimesh.creation.box((0.1, 0.06, 0.04)).export(folder / "block.obj")
    return folder


def upright(folder: Path) -> list[str]:
    """Returns the upright sides, as a world has them."""
    with warnings.catch_warnings(action="error"):
        plant, scene_graph = load(folder)
    groups = welded_groups(plant, plant.GetBodyByName("body").model_instance())
    sides = [side for group in groups for side in sides_with_margin(scene_graph, group)]
    return [str(side) for side in sides if side.upright]


def mass_properties(plant: MultibodyPlant) -> np.ndarray:
    M = plant.GetBodyByName("body").default_spatial_inertia()
    return np.concatenate([[M.get_mass()], M.get_com(), M.CopyToFullMatrix6().ravel()])


def rule_holds(folder: Path) -> bool:
    return min(least_lean(measure_model(read_model(folder))).values(), default=1.0) >= LEAST_LEAN


@pytest.mark.parametrize("inertial", [INERTIAL, AUTO], ids=["given", "auto"])
@pytest.mark.parametrize("shape", SHAPES, ids=["box", "cylinder", "mesh"])
def test_a_mended_model_has_no_upright_sides_and_is_otherwise_the_same(
    tmp_path: Path, shape: str, inertial: str
) -> None:
    if shape == MESH:
        inertial = INERTIAL  # of meshes Drake computes none
    folder = write(tmp_path / "own", ("0.01 0 0.01 0.3 0.2 0.1", shape), inertial=inertial)
    text = (folder / "model.sdf").read_text()
    before, labels = mass_properties(load(folder)[0]), (folder / "keypoints.yaml").read_bytes()
    assert upright(folder) and not rule_holds(folder)
    report = mend(folder)
    (replaced,) = report["replaced"]
    assert not report["upright"] and not upright(folder) and rule_holds(folder)
    mended = (folder / "model.sdf").read_text()
    assert mended.count(shape) == 1 and mended.count("<visual") == 1  # the visual shape
    if inertial == INERTIAL:
        place = text.index(shape)
        assert mended.startswith(text[:place]) and mended.endswith(text[place + len(shape) :])
    assert replaced["moved_um"] < 3e-4 * 0.06 * 1e6
    after = mass_properties(load(folder)[0])
    assert after == pytest.approx(before, rel=1e-6, abs=1e-9)
    assert (folder / "keypoints.yaml").read_bytes() == labels
    written = contents(folder)
    assert mend(folder)["replaced"] == [] and contents(folder) == written


SIZES = st.tuples(*[st.floats(0.005, 0.06)] * 3)
POSES = st.tuples(
    *[st.sampled_from([-0.05, -0.02, 0.0, 0.03])] * 3, *[st.sampled_from([0.0, 0.5, np.pi / 2])] * 3
)


@given(st.lists(st.tuples(SIZES, POSES, st.booleans()), min_size=1, max_size=4))
@few(5)
def test_any_boxes_and_cylinders_are_mended(tmp_path_factory, parts) -> None:
    shapes = []
    for size, pose, is_round in parts:
        box = f"<box><size>{' '.join(map(repr, size))}</size></box>"
        cylinder = f"<cylinder><radius>{size[0]}</radius><length>{size[1]}</length></cylinder>"
        shapes.append((" ".join(map(repr, pose)), cylinder if is_round else box))
    folder = write(tmp_path_factory.mktemp("own"), *shapes)
    assert mend(folder)["upright"] == [] == upright(folder) and rule_holds(folder)


def test_corners_move_by_the_map_alone(tmp_path: Path) -> None:
    folder = write(tmp_path / "own", ("0 0 0.01 0 0 0", BOX), ("0 0 0.03 0 0 0", BOX))
    mend(folder)
    corners = np.array([*itertools.product((-0.03, 0.03), (-0.02, 0.02), (-0.01, 0.01))])
    for k in range(2):
        mesh = trimesh.load_mesh(folder / f"meshes/part_{k}_leaning.obj", process=False)
        distances = np.linalg.norm(np.asarray(mesh.vertices)[:, None] - corners, axis=2)
        assert len(np.unique(np.round(mesh.vertices, 6), axis=0)) == 8
        assert 0 < distances.min(axis=1).max() < 3e-4 * 0.06


def test_an_urdf_model_is_mended(tmp_path: Path) -> None:
    folder = write(tmp_path / "own")
    (folder / "model.sdf").unlink()
    (folder / "own.urdf").write_text(
        '<robot name="own"><link name="body"><inertial><mass value="0.1"/>'
        '<inertia ixx="1e-4" iyy="1e-4" izz="1e-4" ixy="0" ixz="0" iyz="0"/></inertial>'
        '<collision><origin xyz="0 0 0.01"/><geometry><box size="0.06 0.04 0.02"/></geometry>'
        "</collision></link></robot>"
    )
    assert len(mend(folder)["replaced"]) == 1 and mend(folder)["replaced"] == []


def test_nothing_is_written_if_it_fails(tmp_path: Path, capsys) -> None:
    folder = write(tmp_path / "own", ("0 0 0.01 0 0 0", BOX))
    broken = (folder / "model.sdf").read_text().replace("</sdf>", "")
    (folder / "model.sdf").write_text(broken)
    before = contents(folder)
    with pytest.raises(ConfigError, match="is not XML"):
        mend(folder)
    assert main(["mend", str(folder)]) == 2 and contents(folder) == before
    assert main(["mend", str(tmp_path / "absent")]) == 2
    assert "it has no keypoints.yaml" in capsys.readouterr().err


def test_a_failure_to_mend_leaves_the_folder(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(solids, "MAX_MAPS", 0)
    folder = write(tmp_path / "own", ("0 0 0.01 0 0 0", BOX))
    before = contents(folder)
    assert main(["mend", str(folder)]) == 1 and contents(folder) == before
    assert "is unchanged; these sides stay upright" in capsys.readouterr().out


def test_the_program_tells_what_it_replaced(tmp_path: Path, capsys) -> None:
    folder = write(tmp_path / "own", ("0 0 0.01 0 0 0", BOX))
    assert main(["mend", str(folder)]) == 0
    assert "part 0 of body: meshes/part_0_leaning.obj, corners moved" in capsys.readouterr().out
    assert main(["mend", str(folder), "--json"]) == 0
    assert '"replaced": []' in capsys.readouterr().out
