"""Arms as values: the package's fit their models, others are driven, and wrong ones are refused."""

import json
import os
import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import yaml
from pydrake.multibody.tree import JacobianWrtVariable, MultibodyForces, SpatialInertia
from support.arms import made_up, random_payload, six_joints, write_arm
from support.processes import ROOT

import fleet_tools
from fleet_tools.config.tasks import load_task, task_names
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.experts.kinematics import arm_kinematics
from fleet_tools.robot.arm import Arm, load_robot, robot_names
from fleet_tools.robot.arm_model import ArmModel, fitted_task, joint_limits, require_positions
from fleet_tools.robot.osc import operational_space_acceleration
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.own_models import load_admitted_robot
from fleet_tools.sim.scene import sample_scene

MOST = [f"panda_joint{i}" for i in (1, 2, 4, 5, 6)]
ROBOTS = {name: load_robot(name) for name in robot_names()}


@pytest.fixture(name="six", scope="module")
def _six(tmp_path_factory) -> Path:
    return six_joints(tmp_path_factory.mktemp("six"))


@pytest.fixture(name="env", scope="module")
def _env(six):
    env = EnvSpec.of("hammer", robot=str(six)).make()
    yield env
    env.close()


@pytest.mark.parametrize("name", ROBOTS)
def test_a_robot_of_the_package_fits_its_file_and_every_task(name):
    robot = ROBOTS[name]
    assert robot.name == name and robot.file.stem == name
    for posture in robot.postures.values():
        require_positions(robot, posture, "A posture")
    for task in map(load_task, task_names()):
        assert not fitted_task(robot, task).randomization.leaves_to_robot


@pytest.mark.parametrize("name", [*ROBOTS, "six"])
def test_the_hand_looks_down_in_every_posture(name, six):
    robot = ROBOTS[name] if name in ROBOTS else load_robot(str(six))
    model = ArmModel(robot)
    for task in map(load_task, task_names()):
        scene = sample_scene(task, 0, randomization="off", robot=robot)
        _, X_WE = model.dynamics(np.array(scene.initial_joints_rad), np.zeros(robot.num_joints))
        assert X_WE[2, 2] < -0.95 and 0.3 < X_WE[0, 3] < 0.7 and 0.25 < X_WE[2, 3] < 0.5


OBLIQUE = (1.0, -2.0, 2.0)
AXES = {
    "6": [(0, 0, 1), (0, 1, 0), (0, 1, 0), (1, 0, 0), (0, -1, 0), (0, 0, -1)],
    "7": [(0, 0, 1), OBLIQUE, (1, 0, 0), OBLIQUE, (0, 1, 0), (0, 0, 1), (-1, 0, 0)],
    "2": [(0, 1, 0), OBLIQUE],
}
"""Axes of the joints of some arms, by their number."""


@pytest.mark.parametrize("name", [*ROBOTS, *AXES])
def test_the_controllers_model_of_any_row_of_joints_is_that_of_drake(name, tmp_path):
    own = made_up(tmp_path, AXES[name], seed=int(name)) if name in AXES else name
    model, rng = ArmModel(load_robot(str(own))), np.random.default_rng(0)
    plant, context, n = model.plant, model.context, model.num_joints
    E, W = plant.GetFrameByName(load_robot(str(own)).end_effector), plant.world_frame()
    arguments = context, JacobianWrtVariable.kV, E, np.zeros(3), W, W
    for k in range(20):
        model.set_payload(random_payload(rng) if k % 2 else SpatialInertia.Zero())
        q = rng.uniform(model.limits.lower, model.limits.upper)
        v = rng.choice([0.0, 1.0, 5.0]) * rng.normal(size=n)
        plant.SetPositionsAndVelocities(context, np.concatenate([q, v]))
        terms, X_WE = model.dynamics(q, v)
        gravity = MultibodyForces(plant)
        plant.CalcForceElementsContribution(context, gravity)
        bias = plant.CalcInverseDynamics(context, np.zeros(n), gravity)
        Jdot_v = plant.CalcBiasSpatialAcceleration(*arguments).get_coeffs()
        J, X_expected = plant.CalcJacobianSpatialVelocity(*arguments), E.CalcPoseInWorld(context)
        np.testing.assert_allclose(terms.M, plant.CalcMassMatrix(context), atol=1e-11)
        np.testing.assert_allclose(terms.bias, bias, atol=1e-9)
        np.testing.assert_allclose(terms.J, J, atol=1e-11)
        np.testing.assert_allclose(terms.Jdot_v, Jdot_v, atol=1e-9)
        np.testing.assert_allclose(X_WE, X_expected.GetAsMatrix34(), atol=1e-11)


@pytest.mark.parametrize("count", AXES)
def test_an_arm_with_fewer_or_more_joints_than_motions_moves_as_far_as_it_can(count, tmp_path):
    robot = load_robot(str(made_up(tmp_path, AXES[count], seed=int(count))))
    model, rng = ArmModel(robot), np.random.default_rng(1)
    n = robot.num_joints
    for _ in range(10):
        terms, _ = model.dynamics(rng.uniform(-2, 2, n), rng.uniform(-1, 1, n))
        J, posture = terms.J, rng.uniform(-3, 3, n)
        A = J @ rng.uniform(-3, 3, n)  # what the arm can do
        vdot = operational_space_acceleration(terms.M, J, A, posture)
        np.testing.assert_allclose(J @ vdot, A, atol=1e-6)
        if n <= 6:  # no null space: the posture changes nothing
            unasked = operational_space_acceleration(terms.M, J, A, np.zeros(n))
            np.testing.assert_allclose(vdot, unasked, atol=1e-6)


def test_an_arm_that_is_not_redundant_follows_actions_and_its_observations_have_its_size(env):
    observation, _ = env.reset(seed=0)
    assert observation in env.observation_space
    for name in ("joint_position", "joint_velocity", "joint_external_torque"):
        assert observation[name].shape == (6,)
    start = env.world_state().X_WE
    action = np.array([0.4, -0.3, 0.2, 0.2, 0.0, -0.3], np.float32)
    info = [env.step(action)[-1] for _ in range(3)][-1]
    assert info["limits"]["torque_s"].shape == (6,)
    moved = start.inverse() @ env.world_state().X_WE
    assert np.linalg.norm(moved.translation()) == pytest.approx(3 * 0.05 * 0.54, rel=0.1)


def test_the_expert_solves_scenes_with_another_arm(env):
    outcomes = [rollout(env, fleet_tools.ExpertPolicy(env), seed=seed).outcome for seed in range(4)]
    assert outcomes.count("success") >= 3, outcomes


def test_a_scene_or_a_state_of_another_arm_is_refused_before_anything_changes(env):
    env.reset(seed=0)
    before, digest = env.scene, env.state_digest()
    others = sample_scene(load_task("hammer"), 0)
    with pytest.raises(ConfigError, match=r"positions of 7 joints.*'six' has 6"):
        env.reset(options={"scene": others})
    beyond = before.model_copy(update={"initial_joints_rad": (0.0, 0.0, 0.5, 0.0, 2.0, 0.0)})
    with pytest.raises(ConfigError, match=r"initial_joints_rad\.2: .*limits of panda_joint4"):
        env.reset(options={"scene": json.loads(beyond.to_json())})
    assert (env.scene, env.state_digest()) == (before, digest)


def test_the_robot_is_a_keyword_of_gymnasium():
    with gymnasium.make("FleetTools/Hammer-v0", robot="panda") as env:
        assert fleet_tools.unwrap(env).robot == load_robot()
    spec = fleet_tools.EnvSpec.of("hammer", robot="panda")
    assert spec == fleet_tools.EnvSpec.of("hammer")  # the default has one form


@pytest.mark.parametrize(
    "given, message",
    [
        ("pnda", "Unknown robot: 'pnda'. Did you mean 'panda'.*path of its YAML file"),
        ("nowhere.yaml", "Unknown robot: 'nowhere.yaml'"),
        (7, "Expected a robot: one of .*panda.*; given: 7"),
        (None, "Expected a robot: one of"),
    ],
)
def test_an_unknown_robot_is_refused(given, message):
    with pytest.raises((UnknownNameError, ConfigError), match=message):
        EnvSpec.of("hammer", robot=given).make()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"joints": None}, "joints: .*equired"),
        ({"jionts": 1}, "'jionts'.*Did you mean 'joints'"),
        ({"joints": []}, "joints: .*at least 1"),
        ({"joints": ["panda_joint1", "panda_joint1"]}, "joints: a joint is named twice"),
        ({"joints": [f"panda_joint{i}" for i in (2, 1, 4, 5, 6, 7)]}, "in their order"),
        ({"joints": MOST, "postures": {"ready": [0] * 5}}, "panda_joint7 can move"),
        ({"joints": ["panda_jiont1", *MOST[1:], "panda_joint7"]}, "Did you mean 'panda_joint1'"),
        ({"base_link": "panda_lnk0"}, "Did you mean 'panda_link0'"),
        ({"end_effector": "panda_hand_tpc"}, "Did you mean 'panda_hand_tcp'"),
        ({"model": "seven.urdf"}, "the model file .*seven.urdf"),
        ({"model": "six.yaml"}, "is not XML"),
        ({"postures": {"ready": [0, 0]}}, "given: 2"),
        ({"postures": {"sideways": [0, 0, -1, 0, 1, 0]}}, "'ready' is missing"),
        (
            {"postures": {"ready": [0, 0, 0, 0, 1, 0]}},
            r"initial_joints_rad\.2: expected a position",
        ),
        ({"gains": {"posture_rads": 1}}, "Did you mean 'posture_rad_s'"),
        ({"limits": {"panda_joint3": {"torque_nm": 1}}}, "limits.panda_joint3: Unknown joint"),
        ({"limits": {"panda_joint1": {"position_rad": [1, 0]}}}, "expected the lower bound first"),
    ],
)
def test_a_robots_file_that_is_wrong_is_refused(tmp_path, changes, message):
    file = six_joints(tmp_path)
    text = file.read_text()
    six_joints(tmp_path, **changes)
    assert file.read_text() != text
    with pytest.raises((UnknownNameError, ConfigError), match=re.compile(message, re.DOTALL)):
        EnvSpec.of("hammer", robot=str(file)).make()


def test_a_task_asks_for_a_posture_by_name_or_gives_the_joints_of_one_arm(six):
    task = load_task("spatula")
    six_arm = load_robot(str(six))
    assert len(sample_scene(task, 0, robot=six_arm).initial_joints_rad) == 6

    def asking(joints):
        drawn = task.randomization.model_copy(update={"initial_joints_rad": joints})
        return task.model_copy(update={"randomization": drawn})

    with pytest.raises(UnknownNameError, match=r"posture of the robot 'six': 'trned'.*'turned'"):
        fitted_task(six_arm, asking("trned"))
    with pytest.raises(ConfigError, match="'spatula' gives the positions of 7 joints"):
        fitted_task(six_arm, asking(load_robot().postures["ready"]))


def test_what_the_file_says_of_limits_and_plans_replaces_what_the_model_says(tmp_path):
    limit = {"position_rad": [-1.0, 1.5], "speed_rad_s": 0.5, "torque_nm": 20.0}
    file = six_joints(
        tmp_path, limits={"panda_joint1": limit}, planned_rad={"panda_joint2": [-1, 1]}
    )
    limits = ArmModel(load_robot(str(file))).limits
    assert [each[0] for each in limits] == [-1.0, 1.5, 0.5, 20.0]
    kinematics = arm_kinematics(load_robot(str(file)))
    assert (kinematics.lower[1], kinematics.upper[1]) == (-1.0, 1.0)


def test_a_joint_without_limits_is_refused_until_the_file_gives_them(tmp_path):
    file = made_up(tmp_path, AXES["2"], seed=0)
    model = tmp_path / "made_up.urdf"
    unlimited = model.read_text().replace('<limit lower="-3" upper="3" velocity="2" ', "<limit ")
    limit = {"position_rad": [-2.0, 1.0], "speed_rad_s": 3.0}
    load_admitted_robot(str(file))
    assert joint_limits(load_robot(str(file))).lower[0] == -3
    os.utime(model, (1, 1))
    model.write_text(unlimited)
    with pytest.raises(ConfigError, match=r"turn0 of the robot 'made_up' needs limits"):
        joint_limits(load_robot(str(file)))
    write_arm(file, yaml.safe_load(file.read_text()) | {"limits": {"turn0": limit}})
    limits = joint_limits(load_robot(str(file)))
    assert [each[0] for each in limits] == [-2.0, 1.0, 3.0, 90.0]


def test_a_model_that_lies_elsewhere_is_refused(tmp_path):
    file = made_up(tmp_path / "mine", AXES["2"], seed=0)
    (tmp_path / "mine" / "made_up.urdf").rename(tmp_path / "made_up.urdf")
    write_arm(file, yaml.safe_load(file.read_text()) | {"model": "../made_up.urdf"})
    with pytest.raises(ConfigError, match="Put it beside this file"):
        EnvSpec.of("hammer", robot=str(file)).make()


def test_an_arm_goes_to_json_and_back():
    for robot in ROBOTS.values():
        assert Arm.model_validate_json(robot.to_json()).to_json() == robot.to_json()


def test_no_other_room_knows_an_arm_by_name():
    """Nothing outside of `robot/`, the robots' assets and YAML files names an arm or its parts."""
    sizes = r"\(7,\)|eye\(7\)|zeros\(7\)|size=7|_box\(7\)"
    names = re.compile("|".join(("franka", sizes, *robot_names())), re.IGNORECASE)
    found = []
    for room in ("fleet_tools", "experts", "assets", "task_configs"):
        for path in sorted((ROOT / room).rglob("*")):
            place = path.relative_to(ROOT).as_posix()
            if path.suffix in (".py", ".yaml", ".pyi") and not place.startswith(
                ("fleet_tools/robot/", "assets/robots/", "task_configs/robots/")
            ):
                text = path.read_text().replace("pandas", "")
                found += [f"{place}: {match[0]}" for match in names.finditer(text)]
    assert found == []
