"""The Panda's model files: they agree with the published parameters, and are what we generate."""

import os
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydrake.geometry import (
    ClippingRange,
    ColorRenderCamera,
    MakeRenderEngineVtk,
    RenderCameraCore,
    RenderEngineVtkParams,
    SceneGraph,
)
from pydrake.math import RigidTransform, RollPitchYaw
from pydrake.multibody.parsing import Parser
from pydrake.multibody.plant import AddMultibodyPlantSceneGraph, MultibodyPlant
from pydrake.multibody.tree import JointActuatorIndex
from pydrake.systems.framework import Context, DiagramBuilder
from pydrake.systems.sensors import CameraInfo

from fleet_tools.assets.robots.panda.build import main
from fleet_tools.config.file_access import assets_root

PANDA = assets_root() / "robots" / "panda"
URDFS = ("panda.urdf", "panda_franka_visuals.urdf")
MESHES = sorted((PANDA / "meshes").glob("*.obj"))

# Franka Control Interface documentation: a, d, alpha of joints 1..7 and of the flange.
DH = np.array(
    [
        (0, 0.333, 0),
        (0, 0, -np.pi / 2),
        (0, 0.316, np.pi / 2),
        (0.0825, 0, np.pi / 2),
        (-0.0825, 0.384, -np.pi / 2),
        (0, 0, np.pi / 2),
        (0.088, 0, np.pi / 2),
        (0, 0.107, 0),
    ]
)
LOWER = np.array([-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973])
UPPER = np.array([2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973])
SPEED = np.array([2.175] * 4 + [2.61] * 3)
TORQUE = np.array([87] * 4 + [12] * 3)
ROTOR = np.array([0.605721456] * 2 + [0.462474144] * 2 + [0.205544064] * 3)

within_limits = st.tuples(*(st.floats(a, b) for a, b in zip(LOWER, UPPER, strict=True))).map(
    np.array
)
velocities = st.tuples(*(st.floats(-v, v) for v in SPEED)).map(np.array)
quick = settings(max_examples=50, deadline=None)


@cache
def arm(name: str = "panda.urdf") -> tuple[MultibodyPlant, Context]:
    """Returns the welded plant, without geometry, and a context of it."""
    plant = MultibodyPlant(time_step=0.0)
    Parser(plant).AddModels(PANDA / name)
    plant.WeldFrames(plant.world_frame(), plant.GetFrameByName("panda_link0"))
    plant.Finalize()
    return plant, plant.CreateDefaultContext()


def scene(
    name: str, drake_models: Path | None = None
) -> tuple[DiagramBuilder, MultibodyPlant, SceneGraph]:
    """Returns the welded plant and its scene graph on a builder, parsed strictly."""
    builder = DiagramBuilder()
    plant, scene_graph = AddMultibodyPlantSceneGraph(builder, time_step=0.0)
    parser = Parser(plant)
    parser.SetStrictParsing()
    if drake_models:
        packages = parser.package_map()
        if packages.Contains("drake_models"):
            packages.Remove("drake_models")
        packages.Add("drake_models", drake_models)
    parser.AddModels(PANDA / name)
    plant.WeldFrames(plant.world_frame(), plant.GetFrameByName("panda_link0"))
    plant.Finalize()
    return builder, plant, scene_graph


def transform(a: float, d: float, alpha: float, q: float) -> np.ndarray:
    """Returns RotX(alpha) TransX(a) RotZ(q) TransZ(d)."""
    (ca, sa), (cq, sq) = ((np.cos(t), np.sin(t)) for t in (alpha, q))
    return np.array(
        [
            [cq, -sq, 0, a],
            [sq * ca, cq * ca, -sa, -sa * d],
            [sq * sa, cq * sa, ca, ca * d],
            [0, 0, 0, 1],
        ]
    )


@given(within_limits)
@quick
def test_forward_kinematics_is_the_published_dh_product(q: np.ndarray) -> None:
    plant, context = arm()
    plant.SetPositions(context, q)

    def pose(name: str) -> np.ndarray:
        return plant.GetFrameByName(name).CalcPoseInWorld(context).GetAsMatrix4()

    X = np.eye(4)
    for i, ((a, d, alpha), angle) in enumerate(zip(DH, (*q, 0), strict=True), start=1):
        X = X @ transform(a, d, alpha, angle)
        np.testing.assert_allclose(pose(f"panda_link{i}"), X, atol=1e-12)
    X = X @ transform(0, 0, 0, -np.pi / 4)
    np.testing.assert_allclose(pose("panda_hand"), X, atol=1e-12)
    np.testing.assert_allclose(pose("panda_hand_tcp"), X @ transform(0, 0.1034, 0, 0), atol=1e-12)
    for finger, y in (("panda_leftfinger", 0.015), ("panda_rightfinger", -0.015)):
        X_HF = np.linalg.inv(X) @ pose(finger)
        np.testing.assert_allclose(X_HF[:3, 3], [0, y, 0.0584], atol=1e-12)


@given(within_limits)
@quick
def test_mass_matrix_is_symmetric_and_includes_the_rotors(q: np.ndarray) -> None:
    plant, context = arm()
    plant.SetPositions(context, q)
    M = plant.CalcMassMatrix(context)
    np.testing.assert_allclose(M, M.T, atol=1e-12)
    assert np.linalg.eigvalsh(M - np.diag(ROTOR)).min() > 0


@given(within_limits)
@quick
def test_gravity_is_the_gradient_of_potential_energy(q: np.ndarray) -> None:
    plant, context = arm()

    def energy(q: np.ndarray) -> float:
        plant.SetPositions(context, q)
        return plant.CalcPotentialEnergy(context)

    step = 1e-5 * np.eye(7)
    gradient = [(energy(q + h) - energy(q - h)) / 2e-5 for h in step]
    plant.SetPositions(context, q)
    np.testing.assert_allclose(
        plant.CalcGravityGeneralizedForces(context), -np.array(gradient), atol=1e-6
    )


@given(within_limits, velocities)
@quick
def test_both_files_have_the_same_dynamics(q: np.ndarray, v: np.ndarray) -> None:
    def terms(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        plant, context = arm(name)
        plant.SetPositions(context, q)
        plant.SetVelocities(context, v)
        gravity = plant.CalcGravityGeneralizedForces(context)
        return plant.CalcMassMatrix(context), plant.CalcBiasTerm(context), gravity

    for ours, frankas in zip(*map(terms, URDFS), strict=True):
        np.testing.assert_array_equal(ours, frankas)


def test_both_files_differ_only_in_visual_geometry() -> None:
    def without_visuals(name: str) -> str:
        robot = ET.parse(PANDA / name).getroot()
        for parent in (robot, *robot.iter("link")):
            for child in [c for c in parent if c.tag in ("visual", "material")]:
                parent.remove(child)
        return ET.canonicalize(ET.tostring(robot, encoding="unicode"), strip_text=True)

    ours, frankas = map(without_visuals, URDFS)
    assert ours == frankas


@pytest.mark.parametrize("name", URDFS)
def test_limits_are_the_published_ones(name: str) -> None:
    plant, _ = arm(name)
    assert plant.num_positions() == plant.num_actuators() == 7
    assert [plant.get_joint_actuator(JointActuatorIndex(i)).joint().name() for i in range(7)] == [
        f"panda_joint{i}" for i in range(1, 8)
    ]
    actuators = [plant.get_joint_actuator(JointActuatorIndex(i)) for i in range(7)]
    np.testing.assert_array_equal(plant.GetPositionLowerLimits(), LOWER)
    np.testing.assert_array_equal(plant.GetPositionUpperLimits(), UPPER)
    np.testing.assert_array_equal(plant.GetVelocityUpperLimits(), SPEED)
    np.testing.assert_array_equal(plant.GetVelocityLowerLimits(), -SPEED)
    np.testing.assert_array_equal([a.effort_limit() for a in actuators], TORQUE)
    np.testing.assert_allclose(
        [a.default_reflected_inertia() for a in actuators], ROTOR, rtol=1e-12
    )


def test_inertias_are_physically_possible() -> None:
    inertials = list(ET.parse(PANDA / "panda.urdf").getroot().iter("inertial"))
    assert len(inertials) == 11  # links 0 to 7, the hand and two fingers
    for inertial in inertials:
        mass, inertia = inertial.find("mass"), inertial.find("inertia")
        assert mass is not None and inertia is not None
        assert float(mass.attrib["value"]) > 0
        i = {key: float(value) for key, value in inertia.attrib.items()}
        moments = np.linalg.eigvalsh(
            [
                [i["ixx"], i["ixy"], i["ixz"]],
                [i["ixy"], i["iyy"], i["iyz"]],
                [i["ixz"], i["iyz"], i["izz"]],
            ]
        )
        assert moments[0] > 0
        assert moments[0] + moments[1] >= moments[2]


def test_file_loads_without_a_warning_and_the_arm_ignores_itself() -> None:
    _, plant, scene_graph = scene("panda.urdf")
    assert len(plant.GetCollisionGeometriesForBody(plant.GetBodyByName("panda_hand"))) > 0
    assert not scene_graph.model_inspector().GetCollisionCandidates()


def test_generator_writes_the_same_bytes(tmp_path: Path) -> None:
    assert main(["--output", str(tmp_path), "--quiet"]) == 0

    def contents(folder: Path) -> dict[str, bytes]:
        files = [*folder.glob("*.urdf"), *(folder / "meshes").iterdir()]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

    assert contents(tmp_path) == contents(PANDA)


def read_obj(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns vertices, normals, and triangles as (vertex, normal) indices of shape (n, 3, 2)."""
    rows = [line.split() for line in path.read_text().splitlines()]
    vertices, normals = (
        np.array([row[1:] for row in rows if row[0] == key], float) for key in ("v", "vn")
    )
    faces = [[corner.split("//") for corner in row[1:]] for row in rows if row[0] == "f"]
    return vertices, normals, np.array(faces, int) - 1


@pytest.mark.parametrize("path", MESHES, ids=lambda path: path.stem)
def test_meshes_are_small_and_shaded_outwards(path: Path) -> None:
    vertices, normals, triangles = read_obj(path)
    assert np.isfinite(vertices).all() and np.abs(vertices).max() < 0.3
    np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1, atol=2e-3)
    assert 0 < len(triangles) < 2000
    assert triangles.shape[1:] == (3, 2)
    a, b, c = vertices[triangles[..., 0]].transpose(1, 0, 2)
    area = np.cross(b - a, c - a) / 2
    assert np.einsum("ij,ij->", a, area) > 0  # three times the volume, if they face outwards
    along = np.einsum("ij,ikj->ik", area, normals[triangles[..., 1]])
    assert (along > -1e-9).all()


def test_meshes_together_have_less_than_ten_thousand_triangles() -> None:
    assert 0 < sum(len(read_obj(path)[2]) for path in MESHES) < 10_000


def test_franka_visuals_load_and_render() -> None:
    folder = os.environ.get("FLEET_TOOLS_DRAKE_MODELS")
    if not folder:
        pytest.skip("FLEET_TOOLS_DRAKE_MODELS is not set to the folder of Drake's model package")
    builder, plant, scene_graph = scene("panda_franka_visuals.urdf", Path(folder))
    scene_graph.AddRenderer("vtk", MakeRenderEngineVtk(RenderEngineVtkParams()))
    diagram = builder.Build()
    context = diagram.CreateDefaultContext()
    q = np.array([0, -0.3, 0, -2.2, 0, 1.9, 0.785])
    plant.SetPositions(plant.GetMyMutableContextFromRoot(context), q)
    query = scene_graph.get_query_output_port().Eval(scene_graph.GetMyContextFromRoot(context))
    core = RenderCameraCore(
        "vtk", CameraInfo(64, 48, np.pi / 4), ClippingRange(0.1, 10), RigidTransform()
    )
    X_WC = RigidTransform(RollPitchYaw(-np.pi / 2, 0, np.pi / 2), [2.0, 0, 0.4])
    image = query.RenderColorImage(ColorRenderCamera(core), scene_graph.world_frame_id(), X_WC)
    assert np.ptp(image.data[..., :3].astype(int)) > 50
