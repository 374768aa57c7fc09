"""Objects of two meshes with a joint: in Drake, on the bench, in a task, and refused."""

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import trimesh
from support.bench import Bench
from support.foreign_shapes import box, moved

from fleet_tools import new_task
from fleet_tools.assets.__main__ import main
from fleet_tools.assets.model_description import BEECH
from fleet_tools.assets.model_folder import read_files
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.studio.importing.importer import import_mesh
from fleet_tools.studio.importing.joint import JointedModel, import_jointed
from fleet_tools.studio.importing.mesh_file import RawMesh
from fleet_tools.studio.importing.settings import (
    ImportSettings,
    JointSettings,
    LabelSettings,
    ScaleSettings,
)

for library in ("coacd", "manifold3d", "fast_simplification"):
    pytest.importorskip(library)

HINGE = np.array([-0.06, 0.0, 0.06])
RIM = np.array([0.06, 0.0, 0.068])


CHEST = moved(box((120, 90, 60)), 0, 0, 30)
LID = moved(box((120, 90, 8)), 0, 0, 64)

SETTINGS = ImportSettings(
    kind="object",
    family="chest",
    name="chest",
    material=BEECH,
    origin="base",
    scale=ScaleSettings(scale=0.001),
    labels=LabelSettings(keypoint=(("base", (0.0, 0.0, 0.06)),)),
)
JOINT = JointSettings(
    moving=Path("lid.stl"),
    joint="revolute",
    joint_name="lid",
    axis=(0.0, -2.0, 0.0),
    at=(-0.06, 0.0, 0.06),
    limits=(0.0, 110.0),
    resistance=0.3,
    moving_keypoint=(("rim", (0.06, 0.0, 0.068)),),
)


def raw(mesh: trimesh.Trimesh) -> RawMesh:
    return RawMesh(np.array(mesh.vertices), np.array(mesh.faces))


def chest(**changes: Any) -> JointedModel:
    return import_jointed(raw(CHEST), raw(LID), SETTINGS, JOINT.model_copy(update=changes))


def test_the_parts_are_those_of_the_meshes_and_keypoints_move_about_the_axis():
    """Where Drake has the rim of the opened lid, against Rodrigues' formula."""
    model = chest().base.model
    bench = Bench(model)
    plant, context = bench.plant, bench.plant.CreateDefaultContext()
    for name, mesh in {"chest": CHEST, "chest_lid": LID}.items():
        body = plant.GetBodyByName(name, bench.instance)
        assert body.get_mass(context) == pytest.approx(BEECH.density * mesh.volume * 1e-9, rel=1e-6)
        centre = body.EvalPoseInWorld(context).multiply(body.CalcCenterOfMassInBodyFrame(context))
        np.testing.assert_allclose(centre, mesh.center_mass / 1000, atol=1e-6)
    alone = import_mesh(raw(CHEST), SETTINGS).model.links[0].parts[0].solid
    assert model.links[0].parts[0].solid.vertices.tolist() == alone.vertices.tolist()

    rim = model.keypoints["rim"]
    link = plant.GetBodyByName(rim.link, bench.instance)
    arm, axis = RIM - HINGE, np.array([0.0, -1.0, 0.0])
    for angle in (0.0, 0.7, np.deg2rad(110)):
        plant.SetPositions(context, [angle])
        found = link.EvalPoseInWorld(context).multiply(np.array(rim.position))
        turned = arm * np.cos(angle) + np.cross(axis, arm) * np.sin(angle)
        turned += axis * (axis @ arm) * (1 - np.cos(angle))
        np.testing.assert_allclose(found, HINGE + turned, atol=1e-9)
    assert model.joints[0].limits == pytest.approx((0, np.deg2rad(110)))


@pytest.mark.parametrize("kind", ["revolute", "prismatic"])
def test_the_brake_holds_up_to_its_resistance(kind):
    weight = BEECH.density * LID.volume * 1e-9 * 9.81
    limits = (0.0, 110.0) if kind == "revolute" else (0.0, 0.05)
    resistance = 0.3 if kind == "revolute" else 5.0
    axis = (0.0, -1.0, 0.0) if kind == "revolute" else (0.0, 0.0, 1.0)
    model = chest(joint=kind, axis=axis, limits=limits, resistance=resistance).base.model
    load = weight * 0.06 if kind == "revolute" else weight  # of the closed lid
    assert abs(Bench(model).press(0.9 * resistance + load, 0.5)) < 1e-3
    assert Bench(model).press(1.1 * resistance + load, 0.5) > 0.01


def test_parts_are_placed_together_whatever_the_axes_and_the_unit_of_the_files():
    """The same chest in a file whose y is up, labelled there, in millimetres."""
    settings = ImportSettings(
        **{
            **vars(SETTINGS),
            "up": "y",
            "labels": LabelSettings(keypoint=(("base", (0.0, 60.0, 0.0)),), points_in="mesh"),
        }
    )
    joint = JOINT.model_copy(
        update={
            "axis": (0.0, 0.0, 5.0),
            "at": (-60.0, 60.0, 0.0),
            "moving_keypoint": (("rim", (60.0, 68.0, 0.0)),),
        }
    )
    turn = trimesh.transformations.rotation_matrix(-np.pi / 2, [1, 0, 0])
    turned = [mesh.copy().apply_transform(turn) for mesh in (CHEST, LID)]
    again = import_jointed(raw(turned[0]), raw(turned[1]), settings, joint).base.model
    model = chest().base.model
    assert again.keypoints.keys() == model.keypoints.keys()
    for name, point in model.keypoints.items():
        assert again.keypoints[name].link == point.link
        np.testing.assert_allclose(again.keypoints[name].position, point.position, atol=1e-8)
    np.testing.assert_allclose(again.joints[0].axis, model.joints[0].axis, atol=1e-12)
    np.testing.assert_allclose(again.links[1].origin, model.links[1].origin, atol=1e-8)


# --- The program ----------------------------------------------------------------------------

OBJECT = [
    *("--kind", "object", "--scale", "mm"),
    *("--joint", "prismatic", "--joint-name", "press", "--axis=0,0,-1", "--at", "0,0,0.05"),
    *("--limits", "0,0.025", "--resistance", "20", "--moving-keypoint", "cap=0,0,0.09"),
]


def test_an_imported_object_takes_the_place_of_the_scaffolds(tmp_path, capsys):
    block, button = tmp_path / "block.stl", tmp_path / "button.stl"
    moved(box((100, 100, 50)), 0, 0, 25).export(block)  # with a hole that is not modelled
    cylinder = trimesh.creation.cylinder(radius=20, height=50, sections=32)
    cylinder.apply_translation((0, 0, 65)).export(button)
    assert new_task.main(["press", "--output", str(tmp_path / "press"), "--quiet"]) == 0
    given = ["import", str(block), "--moving", str(button), *OBJECT, "--family", "button"]
    given += ["--name", "mine", "--material", "pine", "--keypoint", "base=0,0,0.05"]
    capsys.readouterr()
    assert main([*given, "--output", str(tmp_path / "press"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["joint"]["limits"] == [0, 0.025] and report["warnings"] == []
    assert report["moving"]["mass_kg"] < report["mass_kg"]
    folder = tmp_path / "press" / "objects" / "button" / "mine"
    assert json.loads((folder / "import.json").read_text())["import"]["joint"] == report["joint"]
    files_of_it = read_files(folder)
    assert main([*given, "--output", str(tmp_path / "press"), "--json"]) == 0
    assert read_files(folder) == files_of_it  # the same bytes again

    task = str(tmp_path / "press" / "task.yaml")
    env = gymnasium.make("FleetTools/Custom-v0", task=task, object="mine")
    for seed in range(3):
        episode = rollout(env, ExpertPolicy(env), seed=seed)
        assert (episode.outcome, episode.scene.object) == ("success", "mine")
