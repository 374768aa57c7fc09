"""Tasks in `examples/`: YAML, models and a page to read, and nothing that runs."""

import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import trimesh
import yaml
from conftest import ROOT
from pydrake.multibody.parsing import Parser
from pydrake.multibody.plant import MultibodyPlant
from scipy.spatial.transform import Rotation

from fleet_tools.config.poses import Pose
from fleet_tools.envs.success import judge
from fleet_tools.envs.tool_use_env import EnvState
from fleet_tools.experts.kinematics import arm
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.policies.trivial import ZeroPolicy
from fleet_tools.registration import CUSTOM_ID
from fleet_tools.rollouts.episode import rollout

EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/task.yaml"))
MODELS = sorted(path.parent for path in (ROOT / "examples").rglob("model.sdf"))
STILL = np.zeros(6, np.float32)

each_example = pytest.mark.parametrize("folder", EXAMPLES, ids=lambda path: path.name)
each_model = pytest.mark.parametrize("folder", MODELS, ids=lambda path: path.name)


# --- Every example --------------------------------------------------------------------------


def test_there_are_examples():
    assert EXAMPLES and MODELS


@each_example
def test_they_are_data(folder):
    kinds = Counter(path.suffix for path in folder.rglob("*.*"))
    assert kinds.keys() <= {".yaml", ".sdf", ".md", ".png"}, kinds


@each_example
def test_the_expert_solves_it(make, folder):
    env = make(CUSTOM_ID, task=str(folder / "task.yaml"))
    episodes = [rollout(env, ExpertPolicy(env), seed=seed) for seed in range(3)]
    assert [episode.outcome for episode in episodes] == ["success"] * 3


@each_example
def test_a_robot_that_does_nothing_never_succeeds(make, folder):
    env = make(CUSTOM_ID, task=str(folder / "task.yaml"))
    for seed in range(2):
        episode = rollout(env, ZeroPolicy(env), seed=seed)
        assert episode.outcome == "time_limit"
        moved = env.world_state().X_WO.translation() - env.scene.object_pose.translation_m
        assert np.linalg.norm(moved) < 1e-3


# --- Every model ----------------------------------------------------------------------------


def solid(element: ET.Element) -> trimesh.Trimesh:
    """The mesh of a collision or a visual, in its link's frame; round ones within a few 1e-4."""
    (geometry,) = element.find("geometry")
    numbers = {child.tag: [float(x) for x in child.text.split()] for child in geometry}
    match geometry.tag:
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
    assert mesh.is_volume
    pose = element.find("pose")
    assert pose.get("degrees") == "true"
    *p, roll, pitch, yaw = map(float, pose.text.split())
    X = np.eye(4)
    X[:3, :3] = Rotation.from_euler("xyz", [roll, pitch, yaw], degrees=True).as_matrix()
    X[:3, 3] = p
    return mesh.apply_transform(X)


def links(folder) -> dict[str, ET.Element]:
    return {link.get("name"): link for link in ET.parse(folder / "model.sdf").iter("link")}


@each_model
def test_masses_and_inertias_are_those_of_the_pieces(folder):
    plant = MultibodyPlant(time_step=0.0)
    (instance,) = Parser(plant).AddModels(str(folder / "model.sdf"))
    plant.Finalize()
    context = plant.CreateDefaultContext()
    for name, link in links(folder).items():
        density = float(link.find("inertial/density").text)
        mass, moment, inertia = 0.0, np.zeros(3), np.zeros((3, 3))  # about the link's origin
        for mesh in map(solid, link.iter("collision")):
            m, c = density * mesh.volume, mesh.center_mass
            mass, moment = mass + m, moment + m * c
            inertia += density * mesh.moment_inertia + m * (c @ c * np.eye(3) - np.outer(c, c))
        body = plant.GetBodyByName(name, instance)
        M = body.CalcSpatialInertiaInBodyFrame(context)
        assert M.get_mass() == pytest.approx(mass, rel=0.01)
        assert M.get_com() == pytest.approx(moment / mass, abs=1e-4)
        found = M.CalcRotationalInertia().CopyToFullMatrix3()
        scale = np.sqrt(np.outer(np.diag(inertia), np.diag(inertia)))
        assert (np.abs(found - inertia) <= 0.01 * scale).all()


@each_model
def test_what_is_seen_is_what_is_felt(folder):
    for link in links(folder).values():
        seen, felt = (
            {
                part.get("name"): [ET.tostring(part.find(tag)) for tag in ("pose", "geometry")]
                for part in link.iter(kind)
            }
            for kind in ("visual", "collision")
        )
        assert seen == felt


@each_model
def test_a_contact_keypoint_lies_on_the_surface(folder):
    labels = yaml.safe_load((folder / "keypoints.yaml").read_text())["keypoints"]
    for name in {"seat", "sole", "tail", "crown", "base"} & labels.keys():
        link = links(folder)[labels[name]["link"]]
        position = labels[name]["position"]
        corners = np.concatenate([solid(piece).triangles for piece in link.iter("collision")])
        nearest = trimesh.triangles.closest_point(corners, np.tile(position, (len(corners), 1)))
        distance = np.linalg.norm(nearest - position, axis=1).min()
        assert distance < 2e-4, (name, distance)


# --- What looks like a lifted basket and is none --------------------------------------------


@pytest.fixture(name="basket")
def _basket(make):
    task = str(ROOT / "examples" / "basket" / "task.yaml")
    return make(CUSTOM_ID, task=task, tool="pothook", object="trug", randomization="off")


def holds(env, state, start) -> dict[str, bool]:
    """Whether the basket is raised, and whom it touches."""
    raised = judge(env.task.success[0], start, state).holds
    return {"raised": raised} | {p: state.touch("object", p) for p in ("table", "tool", "robot")}


def test_a_thrown_basket_is_not_lifted(basket):
    basket.reset(seed=0)
    start, state = basket.world_state(), basket.get_state()
    x = state.snapshot.x.copy()
    x[-1] = 2.0  # m/s, upwards: 0.2 m high
    thrown = replace(state.snapshot, x=x)
    basket.set_state(EnvState(state.scene, thrown, state.outcome, 0, False))
    flown = False
    for _ in range(6):
        *_, info = basket.step(STILL)
        flown |= holds(basket, basket.world_state(), start)["raised"]
        assert not info["success"]
    assert flown


FORWARDS = (0.0, -0.3, 0.0, -2.0, 0.0, 3.2708, 0.7854)
"""Joint positions, rad, in which the hand points forwards, x_E upwards: a peg to hang a bow on."""

FINGERS_TOP = (0.0105, 0.0, -0.031)  # m, in the end effector; the middle of the two


def test_a_basket_that_hangs_on_the_fingers_is_not_lifted(basket):
    basket.reset(seed=0)
    crown = basket.world_state().p_W_object["crown"] - basket.world_state().X_WO.translation()
    p_WCrown = arm().forward(np.array(FORWARDS)) @ FINGERS_TOP + [0.0, 0.0, 0.002]
    hanging = {
        "initial_joints_rad": FORWARDS,
        "tool_in_hand": Pose(translation_m=(0.03, 0.0, 0.0)),  # out of the basket's way
        "object_pose": Pose(translation_m=tuple(p_WCrown - crown)),
    }
    basket.reset(options={"scene": basket.scene.model_copy(update=hanging)})
    start, seen = basket.world_state(), []
    up = np.array([0.5, 0, 0, 0, 0, 0], np.float32)
    for action in [STILL] * 4 + [up] * 5 + [STILL] * 10:
        *_, info = basket.step(action)
        seen.append(holds(basket, basket.world_state(), start))
        assert not info["success"]
    lifted = {"raised": True, "table": False, "tool": False, "robot": True}
    assert seen[-3:] == [lifted] * 3, seen
