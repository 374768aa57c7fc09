"""Scenes of several objects: one simulation, in which one object after another is in use."""

import itertools
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.environments import bits, press

from fleet_tools.config.geometry import Pose
from fleet_tools.config.values import parse
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import ConfigError, EpisodeOverError, FleetToolsError
from fleet_tools.experts.perception.perceived import perceived_expert
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.perception.camera_view import OBJECT
from fleet_tools.perception.point_cloud import OBJECT_MASK
from fleet_tools.perception.visible_links import visible_frames
from fleet_tools.policies.policy import StoredActions, ZeroPolicy
from fleet_tools.rollouts.episode import first_difference
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.scene import NextObject, Place, Scene, marked_place, sample_scene
from fleet_tools.sim.world_state import OTHER

Make = Callable[..., ToolUseEnv]
FAR = Pose(translation_m=(0.6, 0.16, 0.0), rpy_deg=(0.0, 0.0, 0.0))
NEAR = Pose(translation_m=(0.55, -0.12, 0.0), rpy_deg=(0.0, 0.0, 0.0))


def of_scene(scene: Scene, **changes: Any) -> NextObject:
    own = {name: getattr(scene, name) for name in NextObject.model_fields}
    return NextObject(**{**own, **changes})


def nails(env: ToolUseEnv, first: Pose = NEAR, second: Pose = FAR) -> Scene:
    """Returns a scene of two nails that differ in nothing but their place."""
    scene = sample_scene(env.task, 3, tool="claw", object="round_nail")
    return scene.model_copy(
        update={"object_pose": first, "next_objects": (of_scene(scene, object_pose=second),)}
    )


def alone(scene: Scene) -> Scene:
    return scene.model_copy(update={"next_objects": ()})


def until_first_is_done(env: ToolUseEnv, scene: Scene) -> list[Any]:
    """Presses the first nail in, and returns the results of the steps."""
    env.reset(options={"scene": scene})
    trace: list[Any] = []
    while not trace or not trace[-1][4]["objects_done"]:
        trace.append(env.step(press(env)))
        assert len(trace) < 60
    return trace


def slides(env: ToolUseEnv) -> list[float]:
    """Returns how deep each nail is, by the plant and not by what the environment tells, m."""
    plant, context = env.simulation.world.plant, env.simulation._context
    return [
        plant.GetJointByName("slide", instance).GetOnePosition(context)
        for instance in env.simulation.world.objects
    ]


def with_slide(env: ToolUseEnv, number: int, depth_m: float) -> None:
    """Goes on from the present state with one of the nails at another depth."""
    plant, state = env.simulation.world.plant, env.get_state()
    context = plant.CreateDefaultContext()
    plant.SetPositionsAndVelocities(context, state.snapshot.x)
    joint: Any = plant.GetJointByName("slide", env.simulation.world.objects[number])
    joint.set_translation(context, depth_m)
    x = plant.GetPositionsAndVelocities(context)
    env.set_state(replace(state, snapshot=replace(state.snapshot, x=x)))


# --- One simulation ---------------------------------------------------------------------------


def test_each_object_has_a_place_of_its_own(make: Make):
    env = make("FleetTools/Spatula-v0", tool="turner", object="brownie")
    first = sample_scene(env.task, 3, tool="turner", object="brownie")
    second = of_scene(
        first,
        object_pose=Pose(translation_m=(0.6, -0.2, 0.0)),
        place=Place(distance_m=0.1, bearing_deg=90.0),
    )
    env.reset(options={"scene": first.model_copy(update={"next_objects": (second,)})})
    expected = [marked_place(each) for each in (first, second)]
    found = [env.simulation.world_state().p_W_place]
    env.simulation.use_next_object()
    found.append(env.simulation.world_state().p_W_place)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(expected[1] or (), [0.6, -0.1, 0.0], atol=1e-9)


def test_the_first_object_is_used_as_if_it_were_alone(make: Make):
    env = make()
    scene = nails(env)
    episode = until_first_is_done(env, scene)
    env.reset(options={"scene": alone(scene)})
    by_itself = [env.step(each[4]["action"]) for each in episode]
    for one, two in zip(by_itself[:-1], episode, strict=False):
        for name, value in one[0].items():
            np.testing.assert_allclose(two[0][name], value, atol=1e-5, err_msg=name)
    one, two = by_itself[-1], episode[-1]
    assert one[4]["outcome"] == "success" and one[2] and not two[2]
    assert one[1] == 1 and two[1] == 0
    assert env.observation_space.contains(two[0])


def test_both_objects_are_there_from_the_start_and_the_change_moves_nothing(make: Make):
    env = make()
    scene = nails(env)
    until_first_is_done(env, scene)
    first, second = slides(env)
    assert first >= 0.02 and abs(second) < 1e-4
    state = env.world_state()
    assert state.object_joints["slide"] == second
    assert state.X_WO.IsNearlyEqualTo(FAR.to_transform(), 1e-9)
    assert state.in_contact("tool", OTHER) and not state.in_contact("tool", "object")
    # The change is one of roles: repeated by hand, the state vector has the same bits.
    simulation = env.simulation
    before = simulation.snapshot()
    simulation._use(0)
    simulation.use_next_object()
    assert simulation.snapshot().x.tobytes() == before.x.tobytes()
    assert simulation.snapshot().digest() == before.digest()


def test_the_order_of_use_is_no_part_of_the_physics(make: Make):
    """The same actions move both nails alike, whichever of them counts first."""
    env = make()
    scene = nails(env)
    actions = [each[4]["action"] for each in until_first_is_done(env, scene)]
    depths = slides(env)
    env.reset(options={"scene": nails(env, first=FAR, second=NEAR)})
    *_, info = [env.step(action) for action in actions][-1]
    assert slides(env)[::-1] == pytest.approx(depths, abs=1e-5)
    assert (info["outcome"], info["objects_done"], info["success"]) == ("running", 0, False)


# --- What counts ------------------------------------------------------------------------------


def test_what_happened_to_an_object_before_its_turn_does_not_count(make: Make):
    """One blow, or one after the other in the wrong order: the second nail is in, and not done."""
    env = make()
    env.reset(options={"scene": nails(env)})
    with_slide(env, 1, 0.03)
    *_, info = env.step(press(env))
    while not info["objects_done"]:
        *_, info = env.step(press(env))
        assert info["outcome"] == "running"
    assert slides(env)[1] > 0.029
    assert info["progress"] < 0.7 and not info["success"] and not info["success_once"]
    assert {each["progress"] for each in info["verdicts"].values()}.isdisjoint({1.0})
    (motion,) = env.world_state().part_motion.values()
    assert motion.object_joints["slide"] == 0.0


def test_a_nail_that_is_done_is_not_counted_twice(make: Make):
    env = make()
    trace = until_first_is_done(env, nails(env))
    assert trace[-2][4]["progress"] <= 0.5 <= trace[-1][4]["progress"]
    before = env.contact_metrics()
    for _ in range(2 * env.task.success_steps + 2):  # the hammer stays on it
        _, reward, terminated, _, info = env.step(np.zeros(6, np.float32))
        assert (reward, terminated, info["objects_done"]) == (0, False, 1)
        assert not info["success"] and not info["success_once"]
    # It is still an object, and no part of the table.
    assert env.contact_metrics().object.contact_s > before.object.contact_s
    assert env.contact_metrics().table == before.table


def test_who_does_nothing_has_the_time_of_two_episodes_and_nothing_done(make: Make):
    env = make()
    episode = rollout(env, ZeroPolicy(env), scene=nails(env))
    assert episode.outcome == "time_limit" and not episode.success.any()
    assert len(episode.actions) == 2 * env.task.max_episode_steps
    assert env.objects_done() == 0


def test_dense_rewards_add_up_to_what_each_object_gained(make: Make):
    env = make(reward="dense")
    env.reset(options={"scene": nails(env)})
    expert = ExpertPolicy(env)
    expert.reset()
    rewards, info = [[0.0], [0.0]], {"objects_done": 0, "outcome": "running"}
    while info["outcome"] == "running":
        done = info["objects_done"]
        _, reward, _, _, info = env.step(expert.act({}))
        rewards[done].append(float(reward))
    assert info["outcome"] == "success"
    assert 0 < sum(rewards[0]) < 1 < sum(rewards[1]) < 2


# --- Experts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["hammer", pytest.param("wrench", marks=pytest.mark.slow)])
def test_the_expert_uses_both(make: Make, task: str):
    env = make(f"FleetTools/{task.title()}-v0")
    scene = sample_scene(env.task, 3)
    first = scene.object_pose.model_copy(update={"translation_m": NEAR.translation_m})
    second = first.model_copy(update={"translation_m": FAR.translation_m})
    objects = (of_scene(scene, object_pose=second),)
    scene = scene.model_copy(update={"object_pose": first, "next_objects": objects})
    episode = rollout(env, ExpertPolicy(env), scene=scene)
    assert episode.outcome == "success"
    assert episode.success.sum() == env.task.success_steps
    repeated = rollout(env, StoredActions(episode.actions), scene=scene)
    assert first_difference(episode, repeated) is None


@pytest.mark.slow
def test_the_expert_that_sees_notices_another_object(make: Make):
    env = make(obs_mode="point_cloud")
    policy = perceived_expert(env)
    episode = rollout(env, policy, scene=nails(env))
    assert policy._source.objects_done == env.objects_done() == 1
    assert episode.outcome == "success"


# --- States and cameras -----------------------------------------------------------------------


@pytest.mark.parametrize("steps_after", [-2, 0, 3])
def test_a_state_continues_bit_for_bit_around_the_change(make: Make, steps_after: int):
    kwargs = {"obs_mode": "point_cloud", "cloud_size": [64, 64], "reward": "dense"}
    env, other = make(**kwargs), make(**{**kwargs, "split": "all"})
    scene = nails(env)
    actions = [each[4]["action"] for each in until_first_is_done(env, scene)]
    actions += [np.full(6, 0.5, np.float32)] * 6
    until = len(actions) - 6 + steps_after
    env.reset(options={"scene": scene})
    for action in actions[:until]:
        env.step(action)
    state = pickle.loads(pickle.dumps(env.get_state()))
    expected = bits([(*env.step(action), env.state_digest()) for action in actions[until:]])
    other.reset(seed=9)
    for each in (other, env):
        each.set_state(state)
        assert each.verdicts().keys() and each.objects_done() == int(steps_after >= 0)
        assert bits([(*each.step(a), each.state_digest()) for a in actions[until:]]) == expected


@pytest.mark.parametrize("source", ["rays", pytest.param("vtk", marks=pytest.mark.slow)])
def test_a_cloud_shows_the_object_in_use_alone(make: Make, source: str):
    env = make(obs_mode="point_cloud", cloud_source=source)
    scene = nails(env)
    observation, _ = env.reset(options={"scene": scene})
    last = until_first_is_done(env, scene)[-1][0]
    again, _ = env.reset(options={"scene": scene})
    assert again["point_cloud"].tobytes() == observation["point_cloud"].tobytes()
    for seen, pose in ((observation, NEAR), (last, FAR)):
        cloud, X_WE = seen["point_cloud"], seen["end_effector_pose"]
        p_E = cloud[cloud[:, 3] == OBJECT_MASK, :3]
        p_W = p_E @ X_WE[:, :3].T + X_WE[:, 3]
        assert np.hypot(*(p_W - pose.translation_m)[:, :2].T).max() < 0.08


@pytest.mark.slow
def test_images_show_all_objects_and_segments_the_one_in_use(make: Make):
    env = make(obs_mode="rgbd", randomization="off")
    scene = nails(env)
    both, _ = env.reset(options={"scene": scene})
    one, _ = env.reset(options={"scene": alone(scene)})
    swapped, _ = env.reset(options={"scene": nails(env, first=FAR, second=NEAR)})
    segments = "overhead_segmentation"
    np.testing.assert_array_equal(both[segments] == OBJECT, one[segments] == OBJECT)
    np.testing.assert_array_equal(both["overhead_rgb"], swapped["overhead_rgb"])
    assert (both["overhead_rgb"] != one["overhead_rgb"]).any()
    assert not ((both[segments] == OBJECT) & (swapped[segments] == OBJECT)).any()


def test_every_world_of_a_scene_shows_the_same_links(make: Make):
    env = make()
    env.reset(options={"scene": nails(env)})
    seen = [dict(visible_frames(world)) for world in env.simulation.world.in_turn()]
    assert len(seen) == 2 and seen[0].keys() == seen[1].keys() and seen[0] != seen[1]


# --- Scenes that do not fit -------------------------------------------------------------------


def test_scenes_of_several_objects_are_values_and_others_stay_as_they_were(make: Make):
    scene = nails(make())
    assert parse(Scene, scene.model_dump(mode="json"), "it") == scene
    assert "next_objects" not in alone(scene).to_json()
    assert len({each.digest() for each in (scene, alone(scene))}) == 2
    assert scene.models == ("claw", "round_nail", "round_nail")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"next_objects": {0: {"object": "hex_nut"}}}, "hex_nut"),
        ({"next_objects": {0: {"object_mass_scale": 1e9}}}, "expected a number from 0.01 to 100"),
        ({"next_objects": {0: {"joint_resistance": {}}}}, "resistance of the joints"),
        ({"next_objects": {0: {"object_pose": {"rpy_deg": [0, 0, 0]}}}}, "translation"),
        ({"next_objects": {k: {} for k in range(4)}}, "next_objects"),
        ({"push": {"time_s": 1, "translation_m": [0, 0, 0.1]}}, "cannot have a push"),
        (
            {"object_forces": [{"start_s": 0, "duration_s": 1, "force_N_per_kg": [1, 0, 0]}]},
            "cannot have a push",
        ),
    ],
)
def test_a_scene_that_does_not_fit_is_refused_with_its_place(make: Make, change, message):
    env = make()
    env.reset(seed=1)
    data = nails(env).model_dump(mode="json")
    (entry,) = data["next_objects"]
    more = change.get("next_objects", {0: {}}).values()
    data |= change | {"next_objects": [entry | each for each in more]}
    with pytest.raises(FleetToolsError, match=message):
        env.reset(options={"scene": data})
    assert env.scene.seed == 1  # the former episode goes on


def test_no_object_begins_outside_the_workspace(make: Make):
    env = make()
    beyond = Pose(translation_m=(3.0, 0.0, 0.0), rpy_deg=(0.0, 0.0, 0.0))
    with pytest.raises(ConfigError, match=r"outside the workspace.*: block, nail\."):
        env.reset(options={"scene": nails(env, second=beyond)})


def test_there_is_no_object_after_the_last(make: Make):
    env = make()
    env.reset(options={"scene": alone(nails(env))})
    with pytest.raises(IndexError):
        env.simulation.use_next_object()
    env.close()
    with pytest.raises(EpisodeOverError):
        env.objects_done()


def test_three_objects_are_used_in_turn(make: Make):
    env = make()
    scene = nails(env)
    third = Pose(translation_m=(0.5, 0.02, 0.0), rpy_deg=(0.0, 0.0, 0.0))
    objects = (*scene.next_objects, of_scene(scene, object_pose=third))
    env.reset(options={"scene": scene.model_copy(update={"next_objects": objects})})
    expert = ExpertPolicy(env)
    expert.reset()
    done, info = [0], {"outcome": "running"}
    while info["outcome"] == "running":
        *_, info = env.step(expert.act({}))
        done.append(info["objects_done"])
    assert info["outcome"] == "success"
    assert [k for k, _ in itertools.groupby(done)] == [0, 1, 2]
    assert min(slides(env)) >= 0.02
