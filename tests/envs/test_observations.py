"""Observations: their values, and the layout that all tasks share."""

import numpy as np
import pytest
from support.environments import press_until_sliding

from fleet_tools.config.tasks import ObservedKeypoints, load_task, task_names
from fleet_tools.dataset.header import describe_observation
from fleet_tools.envs.observation_modes import observables, observation_config
from fleet_tools.envs.observations import observe
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import ConfigError
from fleet_tools.perception.measurement import Measurement
from fleet_tools.perception.point_cloud import PLACE_MASK

SMALL = {"cloud_size": (16, 16), "camera_size": (80, 60)}


@pytest.fixture(scope="module", name="contact")
def _contact(hammer):
    """A state in the middle of contact, where no measurement is zero."""
    press_until_sliding(hammer, seed=1)
    return hammer.get_state()


@pytest.fixture(name="env")
def _env(hammer, contact):
    hammer.set_state(contact)
    return hammer


@pytest.fixture(name="observation")
def _observation(env):
    return observe(env._observables, Measurement(env.world_state()))


def test_the_observation_holds_the_state(env, observation):
    state = env.world_state()
    expected = {
        "joint_position": state.q,
        "joint_velocity": state.v,
        "joint_external_torque": state.tau_external,
        "end_effector_pose": state.X_WE.GetAsMatrix34(),
        "end_effector_wrench": state.F_E,
    }
    for name, value in expected.items():
        np.testing.assert_array_equal(observation[name], value.astype(np.float32))


@pytest.mark.parametrize("kind", ["tool", "object"])
def test_keypoints_are_in_the_end_effector_in_the_order_of_the_task(env, observation, kind):
    state = env.world_state()
    p_W = getattr(state, f"p_W_{kind}")
    names = getattr(env.task.keypoints, kind)
    R_WE, p_WE = state.X_WE.rotation().matrix(), state.X_WE.translation()
    for row, name in zip(observation[f"{kind}_keypoints"], names, strict=True):
        np.testing.assert_allclose(p_WE + R_WE @ row, p_W[name], atol=1e-6)


def test_the_tools_keypoints_do_not_move_in_the_hand(env, observation):
    env.step(np.zeros(6, np.float32))
    later = observe(env._observables, Measurement(env.world_state()))
    np.testing.assert_allclose(later["tool_keypoints"], observation["tool_keypoints"], atol=1e-6)


@pytest.fixture(scope="module", name="multitask")
def _multitask():
    """An environment of each task, with the layout that all tasks share."""
    return {
        task: EnvSpec.of(task=task, obs_mode="multitask_state").make_tool_use()
        for task in task_names()
    }


def test_all_tasks_share_one_layout_and_differ_in_its_masks(multitask):
    layouts = [describe_observation(env) for env in multitask.values()]
    assert all(features == layouts[0] for features in layouts)
    masks = set()
    for env in multitask.values():
        observation, _ = env.reset(seed=3)
        masks.add(
            tuple(observation[f"{part}_keypoints"][:, 3].sum() for part in ("tool", "object"))
        )
    assert len(masks) == len(multitask)


@pytest.mark.parametrize("task", task_names())
def test_the_shared_layout_holds_the_tasks_own_keypoints_and_nothing_else(multitask, task):
    env = multitask[task]
    shared, _ = env.reset(seed=4)
    own, _ = EnvSpec.of(task=task).make_tool_use().reset(seed=4)
    for part in ("tool_keypoints", "object_keypoints"):
        rows = shared.pop(part)
        points = own.pop(part)
        np.testing.assert_array_equal(rows[: len(points), :3], points)
        np.testing.assert_array_equal(rows[:, 3], np.arange(len(rows)) < len(points))
        assert not rows[len(points) :].any()
    for name, value in own.items():
        np.testing.assert_array_equal(shared[name], value)


def test_more_keypoints_than_the_shared_layout_holds_are_refused_or_given_rows():
    many = ObservedKeypoints(tool=tuple(f"point_{k}" for k in range(9)), object=("head",))
    config = observation_config(load_task("hammer"), "multitask_state")
    with pytest.raises(ConfigError, match=r"8 rows, but the task has 9 tool_.*_rows=9"):
        observables("multitask_state", many, config, 7)
    config = observation_config(load_task("hammer"), "multitask_state", keypoint_rows=12)
    entries = observables("multitask_state", many, config, 7)
    assert entries["tool_keypoints"].spec.shape == entries["object_keypoints"].spec.shape == (12, 4)


def test_clouds_and_keypoints_together_are_those_of_each_mode(make):
    """So that policies that read either can learn from the same demonstrations."""
    both = make(obs_mode="cloud_and_keypoints", **SMALL)
    alone = [make(obs_mode="multitask_state"), make(obs_mode="point_cloud", **SMALL)]
    for step in range(3):
        action = np.full(6, 0.3, np.float32)
        expected: dict[str, np.ndarray] = {}
        for env in alone:
            expected |= env.step(action)[0] if step else env.reset(seed=3)[0]
        observed = both.step(action)[0] if step else both.reset(seed=3)[0]
        assert observed.keys() == expected.keys()
        for name, value in observed.items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)


@pytest.mark.parametrize(
    "mode", ["state", "multitask_state", "point_cloud", "cloud_and_keypoints", "rgbd"]
)
def test_every_mode_tells_the_marked_place(make, mode):
    env = make("FleetTools/Spatula-v0", obs_mode=mode, **({} if "state" in mode else SMALL))
    observation, _ = env.reset(seed=5)
    state = env.world_state()
    expected = state.X_WE.inverse() @ state.p_W_place
    found = []
    if "object_keypoints" in observation:
        found.append(observation["object_keypoints"][2, :3])
    if "point_cloud" in observation:
        cloud = observation["point_cloud"]
        found += [*cloud[cloud[:, 3] == PLACE_MASK, :3]]
    if mode == "rgbd":
        found += [*observation["place"]]
    assert found
    for point in found:
        np.testing.assert_allclose(point, expected, atol=1e-6)


def test_a_cloud_has_room_for_the_place():
    with pytest.raises(ConfigError, match="at least 2 points"):
        observation_config(load_task("spatula"), "point_cloud", cloud_size=(4, 1))
