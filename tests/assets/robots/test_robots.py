"""The arms' model files: they agree with the published figures, and are what we generate."""

import importlib
import os
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydrake.geometry import (
    ClippingRange,
    ColorRenderCamera,
    MakeRenderEngineVtk,
    RenderCameraCore,
    RenderEngineVtkParams,
    SceneGraph,
)
from pydrake.math import RigidTransform, RollPitchYaw, RotationMatrix
from pydrake.multibody.parsing import Parser
from pydrake.multibody.plant import AddMultibodyPlantSceneGraph, MultibodyPlant
from pydrake.multibody.tree import JointActuatorIndex
from pydrake.systems.framework import Context, DiagramBuilder
from pydrake.systems.sensors import CameraInfo
from support.published_arms import (
    IIWA14,
    IIWA14_CENTRES,
    PANDA,
    QUARTER,
    ROBOTS,
    UR5E,
    UR5E_CENTRES,
    Published,
    craig,
    standard,
)
from support.shares import few

from fleet_tools.assets.robots.arm_files import box_inertial, quarter_turn

EACH = pytest.mark.parametrize("robot", [PANDA, UR5E, IIWA14], ids=lambda robot: robot.name)


def positions(robot: Published) -> st.SearchStrategy[np.ndarray]:
    """Returns joint positions within the limits, rad."""
    bounds = zip(robot.lower, robot.upper, strict=True)
    return st.tuples(*(st.floats(a, b) for a, b in bounds)).map(np.array)


@cache
def arm(name: str, base: str, file: str) -> tuple[MultibodyPlant, Context]:
    """Returns the welded plant, without geometry, and a context of it."""
    plant = MultibodyPlant(time_step=0.0)
    Parser(plant).AddModels(ROBOTS / name / file)
    plant.WeldFrames(plant.world_frame(), plant.GetFrameByName(base))
    plant.Finalize()
    return plant, plant.CreateDefaultContext()


def welded(robot: Published, file: str = "") -> tuple[MultibodyPlant, Context]:
    """Returns the arm of a file, the first by default."""
    return arm(robot.name, robot.base, file or robot.urdfs[0])


def scene(
    robot: Published, file: str = "", drake_models: Path | None = None
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
    parser.AddModels(robot.folder / (file or robot.urdfs[0]))
    plant.WeldFrames(plant.world_frame(), plant.GetFrameByName(robot.base))
    plant.Finalize()
    return builder, plant, scene_graph


@EACH
@given(data=st.data())
@few(10)
def test_forward_kinematics_is_the_published_dh_product(robot, data):
    plant, context = welded(robot)
    q = data.draw(positions(robot))
    plant.SetPositions(context, q)

    def pose(name: str) -> np.ndarray:
        return plant.GetFrameByName(name).CalcPoseInWorld(context).GetAsMatrix4()

    X, angles = robot.X_WB, np.append(q, 0)
    for i, (a, d, alpha) in enumerate(robot.dh):
        before, X = X, X @ robot.transform(a, d, alpha, angles[i])
        turned = craig(0, 0, 0, angles[i])  # where a link's frame is in the standard convention
        if i < q.size:
            link = X if robot.transform is craig else before @ turned
            np.testing.assert_allclose(pose(f"{robot.name}_link{i + 1}"), link, atol=1e-12)
    np.testing.assert_allclose(pose(robot.flange), X, atol=1e-12)
    X = X @ craig(0, 0, 0, robot.hand_yaw)
    np.testing.assert_allclose(pose(f"{robot.name}_hand"), X, atol=1e-12)
    X_WE = X @ craig(0, 0.1034, 0, 0)
    np.testing.assert_allclose(pose(f"{robot.name}_hand_tcp"), X_WE, atol=1e-12)
    for finger, y in (("leftfinger", 0.015), ("rightfinger", -0.015)):
        X_HF = np.linalg.inv(X) @ pose(f"{robot.name}_{finger}")
        np.testing.assert_allclose(X_HF[:3, 3], [0, y, robot.finger], atol=1e-12)


@EACH
@given(data=st.data())
@few(10)
def test_mass_matrix_is_symmetric_and_includes_the_rotors(robot, data):
    plant, context = welded(robot)
    plant.SetPositions(context, data.draw(positions(robot)))
    M = plant.CalcMassMatrix(context)
    np.testing.assert_allclose(M, M.T, atol=1e-12)
    assert np.linalg.eigvalsh(M - np.diag(robot.rotor)).min() > 0


@EACH
@given(data=st.data())
@few(10)
def test_gravity_is_the_gradient_of_potential_energy(robot: Published, data: st.DataObject) -> None:
    plant, context = welded(robot)
    q = data.draw(positions(robot))

    def energy(q: np.ndarray) -> float:
        plant.SetPositions(context, q)
        return plant.CalcPotentialEnergy(context)

    step = 1e-5 * np.eye(q.size)
    gradient = [(energy(q + h) - energy(q - h)) / 2e-5 for h in step]
    plant.SetPositions(context, q)
    np.testing.assert_allclose(
        plant.CalcGravityGeneralizedForces(context), -np.array(gradient), atol=1e-6
    )


@EACH
@given(data=st.data())
@few(10)
def test_motors_hold_the_arm_against_gravity_with_two_kilograms_to_spare(
    robot: Published, data: st.DataObject
) -> None:
    # The payloads are 3, 5 and 14 kg; of them the hand takes .76, .74 and .74 kg.
    plant, context = welded(robot)
    plant.SetPositions(context, data.draw(positions(robot)))
    E, W = plant.GetFrameByName(f"{robot.name}_hand_tcp"), plant.world_frame()
    J = plant.CalcJacobianPositionVector(context, E, np.zeros(3), W, W)  # (3, n), for v = qdot
    held = plant.CalcGravityGeneralizedForces(context) + J[2] * 2.0 * -9.81
    assert (np.abs(held) < robot.torque).all()


def test_both_files_of_the_panda_differ_only_in_visual_geometry() -> None:
    def without_visuals(name: str) -> str:
        robot = ET.parse(PANDA.folder / name).getroot()
        for parent in (robot, *robot.iter("link")):
            for child in [c for c in parent if c.tag in ("visual", "material")]:
                parent.remove(child)
        return ET.canonicalize(ET.tostring(robot, encoding="unicode"), strip_text=True)

    ours, frankas = map(without_visuals, PANDA.urdfs)
    assert ours == frankas


@pytest.mark.parametrize(
    ("robot", "file"), [(robot, file) for robot in (PANDA, UR5E, IIWA14) for file in robot.urdfs]
)
def test_limits_and_masses_are_the_published_ones(robot: Published, file: str) -> None:
    plant, context = welded(robot, file)
    n = len(robot.torque)
    assert plant.num_positions() == plant.num_actuators() == n
    actuators = [plant.get_joint_actuator(JointActuatorIndex(i)) for i in range(n)]
    assert [each.joint().name() for each in actuators] == [
        f"{robot.name}_joint{i}" for i in range(1, n + 1)
    ]
    np.testing.assert_allclose(plant.GetPositionLowerLimits(), robot.lower, rtol=1e-15)
    np.testing.assert_allclose(plant.GetPositionUpperLimits(), robot.upper, rtol=1e-15)
    np.testing.assert_allclose(plant.GetVelocityUpperLimits(), robot.speed, rtol=1e-15)
    np.testing.assert_allclose(plant.GetVelocityLowerLimits(), -robot.speed, rtol=1e-15)
    np.testing.assert_array_equal([each.effort_limit() for each in actuators], robot.torque)
    np.testing.assert_allclose(
        [each.default_reflected_inertia() for each in actuators], robot.rotor, rtol=1e-12
    )
    links = [plant.GetBodyByName(f"{robot.name}_link{i}") for i in range(1, n + 1)]
    hand = [f"{robot.name}_{name}" for name in ("hand", "leftfinger", "rightfinger")]
    masses = [link.get_mass(context) for link in links]
    masses.append(sum(plant.GetBodyByName(name).get_mass(context) for name in hand))
    np.testing.assert_allclose(masses, robot.masses, rtol=1e-12)


def test_the_ur5es_centres_of_mass_and_tensors_are_in_the_published_frames() -> None:
    plant, context = welded(UR5E)
    q = np.array(UR5E.ready)
    plant.SetPositions(context, q)
    X = UR5E.X_WB
    for i, ((a, d, alpha), p_FC) in enumerate(zip(UR5E.dh, UR5E_CENTRES, strict=True), start=1):
        X = X @ standard(a, d, alpha, q[i - 1])
        link = plant.GetBodyByName(f"ur5e_link{i}")
        X_WL = link.EvalPoseInWorld(context)
        M_L = link.CalcSpatialInertiaInBodyFrame(context)
        p_WC = X_WL @ M_L.get_com()
        np.testing.assert_allclose(p_WC, (X @ np.append(p_FC, 1))[:3], atol=1e-9)
        if i == 3:  # the tensor of the forearm, whose products are not small
            R_FL = RotationMatrix(X[:3, :3]).inverse() @ X_WL.rotation()
            central = M_L.Shift(M_L.get_com()).CalcRotationalInertia().ReExpress(R_FL)
            np.testing.assert_allclose(
                central.CopyToFullMatrix3()[[0, 1, 2, 0], [0, 1, 2, 2]],
                [0.00399632, 0.07879254, 0.07848510, 0.00137272],
                atol=1e-12,
            )


def test_the_straight_iiwa_has_its_published_centres_of_mass_moments_and_weight() -> None:
    plant, context = welded(IIWA14)
    plant.SetPositions(context, np.zeros(7))
    for i, p_WC in enumerate(IIWA14_CENTRES, start=1):
        link = plant.GetBodyByName(f"iiwa14_link{i}")
        M_L = link.CalcSpatialInertiaInBodyFrame(context)
        X_WL = link.EvalPoseInWorld(context)
        np.testing.assert_allclose(X_WL @ M_L.get_com(), p_WC, atol=1e-9)
        central = M_L.Shift(M_L.get_com()).CalcRotationalInertia().ReExpress(X_WL.rotation())
        moments = central.CopyToFullMatrix3()
        np.testing.assert_allclose(moments, np.diag(np.diag(moments)), atol=1e-12)
        if i == 1:
            np.testing.assert_allclose(np.diag(moments), [0.069, 0.071, 0.02], atol=1e-12)
        if i == 6:
            np.testing.assert_allclose(np.diag(moments), [0.007, 0.006, 0.005], atol=1e-12)
    arm = [plant.GetBodyByName(f"iiwa14_link{i}").get_mass(context) for i in range(8)]
    assert sum(arm) == pytest.approx(29.9)


@EACH
def test_inertias_are_physically_possible(robot: Published) -> None:
    inertials = list(ET.parse(robot.folder / robot.urdfs[0]).getroot().iter("inertial"))
    # Those of the joints' links; the base's, the hand's and two fingers'; and the stand's.
    assert len(inertials) == len(robot.torque) + 4 + (robot is UR5E)
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


@EACH
def test_file_loads_without_a_warning_and_the_arm_ignores_itself(robot: Published) -> None:
    _, plant, scene_graph = scene(robot)
    for link in ("hand", "leftfinger", "rightfinger"):
        body = plant.GetBodyByName(f"{robot.name}_{link}")
        assert len(plant.GetCollisionGeometriesForBody(body)) > 0
    assert not scene_graph.model_inspector().GetCollisionCandidates()


@EACH
def test_the_arm_does_not_reach_into_itself_when_it_is_ready(robot: Published) -> None:
    """Links that are not neighbours are apart, although their contact is filtered."""
    builder, plant, scene_graph = scene(robot)
    diagram = builder.Build()
    context = diagram.CreateDefaultContext()
    plant.SetPositions(plant.GetMyMutableContextFromRoot(context), np.array(robot.ready))
    query = scene_graph.get_query_output_port().Eval(scene_graph.GetMyContextFromRoot(context))
    order = ["link0", *(f"link{i + 1}" for i in range(len(robot.torque))), "hand"]
    shapes = [
        plant.GetCollisionGeometriesForBody(plant.GetBodyByName(f"{robot.name}_{link}"))
        for link in order
    ]
    gaps = [
        query.ComputeSignedDistancePairClosestPoints(a, b).distance
        for i, first in enumerate(shapes)
        for second in shapes[i + 3 :]
        for a in first
        for b in second
    ]
    assert min(gaps) > 0.01


@EACH
def test_generator_writes_the_same_bytes(robot: Published, tmp_path: Path) -> None:
    build = importlib.import_module(f"fleet_tools.assets.robots.{robot.name}.build")
    assert build.main(["--output", str(tmp_path), "--quiet"]) == 0

    def contents(folder: Path) -> dict[str, bytes]:
        files = [*folder.glob("*.urdf"), *(folder / "meshes").iterdir()]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

    assert contents(tmp_path) == contents(robot.folder)


def test_a_solid_box_and_a_quarter_turn_are_what_they_say() -> None:
    inertial = box_inertial(12.0, (1.0, 2.0, 3.0), (0, 0, 1))
    assert inertial == (12.0, (0, 0, 1), (13.0, 10.0, 5.0, 0, 0, 0), (0, 0, 0))
    assert [quarter_turn(k * QUARTER) for k in (-1, 0, 1)] == [(0, -1), (1, 0), (0, 1)]


def read_obj(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns vertices, normals, and triangles as (vertex, normal) indices of shape (n, 3, 2)."""
    rows = [line.split() for line in path.read_text().splitlines()]
    vertices, normals = (
        np.array([row[1:] for row in rows if row[0] == key], float) for key in ("v", "vn")
    )
    faces = [[corner.split("//") for corner in row[1:]] for row in rows if row[0] == "f"]
    return vertices, normals, np.array(faces, int) - 1


@EACH
def test_meshes_are_small_and_shaded_outwards(robot: Published) -> None:
    count = 0
    for path in sorted((robot.folder / "meshes").glob("*.obj")):
        vertices, normals, triangles = read_obj(path)
        assert np.isfinite(vertices).all() and np.abs(vertices).max() < 0.5, path
        np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1, atol=2e-3)
        assert 0 < len(triangles) < 2000, path
        assert triangles.shape[1:] == (3, 2)
        a, b, c = vertices[triangles[..., 0]].transpose(1, 0, 2)
        area = np.cross(b - a, c - a) / 2
        assert np.einsum("ij,ij->", a, area) > 0  # three times the volume, if they face outwards
        along = np.einsum("ij,ikj->ik", area, normals[triangles[..., 1]])
        assert (along > -1e-9).all(), path
        count += len(triangles)
    assert 0 < count < 10_000


def test_franka_visuals_load_and_render() -> None:
    folder = os.environ.get("FLEET_TOOLS_DRAKE_MODELS")
    if not folder:
        pytest.skip("FLEET_TOOLS_DRAKE_MODELS is not set to the folder of Drake's model package")
    builder, plant, scene_graph = scene(PANDA, "panda_franka_visuals.urdf", Path(folder))
    scene_graph.AddRenderer("vtk", MakeRenderEngineVtk(RenderEngineVtkParams()))
    diagram = builder.Build()
    context = diagram.CreateDefaultContext()
    plant.SetPositions(plant.GetMyMutableContextFromRoot(context), np.array(PANDA.ready))
    query = scene_graph.get_query_output_port().Eval(scene_graph.GetMyContextFromRoot(context))
    core = RenderCameraCore(
        "vtk", CameraInfo(64, 48, np.pi / 4), ClippingRange(0.1, 10), RigidTransform()
    )
    X_WC = RigidTransform(RollPitchYaw(-np.pi / 2, 0, np.pi / 2), [2.0, 0, 0.4])
    image = query.RenderColorImage(ColorRenderCamera(core), scene_graph.world_frame_id(), X_WC)
    assert np.ptp(image.data[..., :3].astype(int)) > 50
