"""Tasks in `examples/`, which consist of data alone: YAML, models and a page of text."""

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import trimesh
import yaml
from pydrake.multibody.parsing import Parser
from pydrake.multibody.plant import MultibodyPlant
from scipy.spatial.transform import Rotation
from support.processes import ROOT

from fleet_tools.config.geometry import Pose
from fleet_tools.envs.episode_state import EnvState
from fleet_tools.envs.success import judge
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.kinematics import arm_kinematics
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.policies.policy import ZeroPolicy
from fleet_tools.registration import CUSTOM_ID
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.world_state import WorldState

EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/task.yaml"))
MODELS = sorted(path.parent for path in (ROOT / "examples").rglob("model.sdf"))
NO_MOTION = np.zeros(6, np.float32)
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]

Make = Callable[..., ToolUseEnv]

each_example = pytest.mark.parametrize("folder", EXAMPLES, ids=lambda path: path.name)
each_model = pytest.mark.parametrize("folder", MODELS, ids=lambda path: path.name)


# --- Every example --------------------------------------------------------------------------


def test_there_are_examples() -> None:
    assert EXAMPLES and MODELS


@each_example
def test_an_example_holds_only_data(folder: Path) -> None:
    kinds = Counter(path.suffix for path in folder.rglob("*.*"))
    assert kinds.keys() <= {".yaml", ".sdf", ".md", ".png", ".obj"}, kinds


@pytest.mark.parametrize("seed", SEEDS)
@each_example
def test_the_expert_succeeds(make: Make, folder: Path, seed: int) -> None:
    env = make(CUSTOM_ID, task=str(folder / "task.yaml"))
    assert rollout(env, ExpertPolicy(env), seed=seed).outcome == "success"


@pytest.mark.parametrize("seed", SEEDS[:2])
@each_example
def test_a_robot_without_motion_never_succeeds(make: Make, folder: Path, seed: int) -> None:
    env = make(CUSTOM_ID, task=str(folder / "task.yaml"))
    episode = rollout(env, ZeroPolicy(env), seed=seed)
    assert episode.outcome == "time_limit"
    moved = env.world_state().X_WO.translation() - env.scene.object_pose.translation_m
    assert np.linalg.norm(moved) < 1e-3


# --- Every model ----------------------------------------------------------------------------


def element_in(parent: ET.Element, path: str) -> ET.Element:
    """Returns the element at a path."""
    element = parent.find(path)
    assert element is not None, path
    return element


def numbers_in(element: ET.Element) -> list[float]:
    """Returns the numbers of an element's text."""
    return [float(number) for number in (element.text or "").split()]


def solid(element: ET.Element, folder: Path) -> trimesh.Trimesh:
    """Returns the mesh of a collision or a visual of a model, in its link's frame.

    Cylinders and capsules are approximated by polyhedra, well within the tolerances below.
    """
    (geometry,) = element_in(element, "geometry")
    numbers = {} if geometry.tag == "mesh" else {each.tag: numbers_in(each) for each in geometry}
    match geometry.tag:
        case "mesh":
            vertices = trimesh.load_mesh(folder / (element_in(geometry, "uri").text or "")).vertices
            mesh = trimesh.convex.convex_hull(vertices)
        case "box":
            mesh = trimesh.creation.box(numbers["size"])
        case "cylinder":
            (radius,), (length,) = numbers["radius"], numbers["length"]
            mesh = trimesh.creation.cylinder(radius, length, sections=256)
        case "capsule":
            (radius,), (length,) = numbers["radius"], numbers["length"]
            ball = trimesh.creation.icosphere(subdivisions=4, radius=radius).vertices
            ends = [np.add(ball, [0, 0, z]) for z in (-length / 2, length / 2)]
            mesh = trimesh.convex.convex_hull(np.concatenate(ends))
        case other:
            raise NotImplementedError(other)
    assert mesh.is_volume
    pose = element_in(element, "pose")
    assert pose.get("degrees") == "true"
    *p, roll, pitch, yaw = numbers_in(pose)
    X = np.eye(4)
    X[:3, :3] = Rotation.from_euler("xyz", [roll, pitch, yaw], degrees=True).as_matrix()
    X[:3, 3] = p
    return mesh.apply_transform(X)


def links(folder: Path) -> dict[str, ET.Element]:
    """Returns the links of a model by name."""
    return {link.attrib["name"]: link for link in ET.parse(folder / "model.sdf").iter("link")}


@each_model
def test_masses_and_inertias_are_those_of_the_visual_geometries(folder: Path) -> None:
    plant = MultibodyPlant(time_step=0.0)
    (instance,) = Parser(plant).AddModels(folder / "model.sdf")
    plant.Finalize()
    context = plant.CreateDefaultContext()
    for name, link in links(folder).items():
        solids = [solid(visual, folder) for visual in link.iter("visual")]
        body = plant.GetBodyByName(name, instance)
        M = body.CalcSpatialInertiaInBodyFrame(context)
        density = float(link.findtext("inertial/density", "nan"))
        if np.isnan(density):  # mended; then only proportions are known
            density = M.get_mass() / sum(mesh.volume for mesh in solids)
        mass, moment, inertia = 0.0, np.zeros(3), np.zeros((3, 3))  # about the link's origin
        for mesh in solids:
            m, c = density * mesh.volume, mesh.center_mass
            mass, moment = mass + m, moment + m * c
            inertia += density * mesh.moment_inertia + m * (c @ c * np.eye(3) - np.outer(c, c))
        assert M.get_mass() == pytest.approx(mass, rel=0.01)
        assert M.get_com() == pytest.approx(moment / mass, abs=1e-4)
        found = M.CalcRotationalInertia().CopyToFullMatrix3()
        scale = np.sqrt(np.outer(np.diag(inertia), np.diag(inertia)))
        assert (np.abs(found - inertia) <= 0.01 * scale).all()


@each_model
def test_visual_and_collision_geometries_are_the_same(folder: Path) -> None:
    """Mended collision geometries are within micrometres, and cylinders prisms that Drake makes."""
    for link in links(folder).values():
        visuals, collisions = (
            {part.get("name"): part for part in link.iter(kind)} for kind in ("visual", "collision")
        )
        assert visuals.keys() == collisions.keys()
        for name, collision in collisions.items():
            seen = visuals[name]
            assert ET.tostring(element_in(seen, "pose")) == ET.tostring(
                element_in(collision, "pose")
            )
            if collision.find("geometry/mesh") is None:
                shapes = (ET.tostring(element_in(each, "geometry")) for each in (seen, collision))
                assert len(set(shapes)) == 1
                continue
            mesh, expected = solid(collision, folder), solid(seen, folder)
            assert mesh.volume == pytest.approx(expected.volume, rel=0.3)
            _, distances, _ = trimesh.proximity.closest_point(expected, mesh.vertices)
            assert distances.max() < 6e-5


@each_model
def test_a_contact_keypoint_lies_on_the_surface(folder: Path) -> None:
    labels = yaml.safe_load((folder / "keypoints.yaml").read_text())["keypoints"]
    for name in {"seat", "sole", "tail", "crown", "base"} & labels.keys():
        link = links(folder)[labels[name]["link"]]
        position = labels[name]["position"]
        corners = np.concatenate(
            [solid(piece, folder).triangles for piece in link.iter("collision")]
        )
        nearest = trimesh.triangles.closest_point(corners, np.tile(position, (len(corners), 1)))
        distance = np.linalg.norm(nearest - position, axis=1).min()
        assert distance < 2e-4, (name, distance)


# --- A basket that is raised, but not by the tool -------------------------------------------


@pytest.fixture(name="basket")
def _basket(make: Make) -> ToolUseEnv:
    task = str(ROOT / "examples" / "basket" / "task.yaml")
    return make(CUSTOM_ID, task=task, tool="pothook", object="trug", randomization="off")


def raised_and_contacts(env: ToolUseEnv, start: WorldState) -> dict[str, bool]:
    """Returns whether the basket is raised, and with which bodies it is in contact."""
    state = env.world_state()
    contacts = {body: state.in_contact("object", body) for body in ("table", "tool", "robot")}
    return {"raised": judge(env.task.success[0], start, state).holds, **contacts}


def test_throwing_the_basket_is_no_success(basket: ToolUseEnv) -> None:
    basket.reset(seed=0)
    start, state = basket.world_state(), basket.get_state()
    x = state.snapshot.x.copy()
    x[-1] = 2.0  # m/s, upwards: 0.2 m high
    thrown = replace(state.snapshot, x=x)
    basket.set_state(EnvState(state.scene, thrown, state.outcome, 0, False))
    raised = False
    for _ in range(6):
        *_, info = basket.step(NO_MOTION)
        raised |= raised_and_contacts(basket, start)["raised"]
        assert not info["success"]
    assert raised


FORWARDS = (0.0, -0.3, 0.0, -2.0, 0.0, 3.2708, 0.7854)
"""Joint positions, rad, in which the hand points forwards, x_E upwards, so that the bow of the
basket can hang on the fingers."""

FINGERS_TOP = (0.0105, 0.0, -0.031)
"""Position of the middle between the fingers' tops in the end effector, m."""


def test_hanging_the_basket_on_the_fingers_is_no_success(basket: ToolUseEnv) -> None:
    basket.reset(seed=0)
    crown = basket.world_state().p_W_object["crown"] - basket.world_state().X_WO.translation()
    X_WE = arm_kinematics(basket.robot).forward(np.array(FORWARDS))
    p_WCrown = X_WE @ FINGERS_TOP + [0.0, 0.0, 0.002]
    x, y, z = p_WCrown - crown
    hanging = {
        "initial_joints_rad": FORWARDS,
        "tool_in_hand": Pose(translation_m=(0.03, 0.0, 0.0)),  # where it does not touch the basket
        "object_pose": Pose(translation_m=(x, y, z)),
    }
    basket.reset(options={"scene": basket.scene.model_copy(update=hanging)})
    start, observed = basket.world_state(), []
    up = np.array([0.5, 0, 0, 0, 0, 0], np.float32)
    for action in [NO_MOTION] * 4 + [up] * 5 + [NO_MOTION] * 10:
        *_, info = basket.step(action)
        observed.append(raised_and_contacts(basket, start))
        assert not info["success"]
    lifted = {"raised": True, "table": False, "tool": False, "robot": True}
    assert observed[-3:] == [lifted] * 3, observed
