"""The spatula task: a lifted slab, and states that only look like success."""

from dataclasses import replace

import numpy as np
import pytest
from pydrake.math import RigidTransform, RotationMatrix
from support.environments import with_bodies
from support.rendering import needs_gl

from fleet_tools.envs.episode_state import EnvState
from fleet_tools.envs.success import judge
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import ConfigError
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.sim.scene import Place, Scene, marked_place, sample_scene
from fleet_tools.sim.world_state import WorldState

STAY = np.zeros(6, np.float32)
SECOND = 6
LEVEL = {"tool_in_hand": False}
"""A grasp with a level blade, on which slabs can be laid."""


@pytest.fixture(scope="module", name="env")
def _env(make):
    return make(
        "FleetTools/Spatula-v0",
        tool="turner",
        object="brownie",
        randomization=LEVEL,
    )


@pytest.fixture(scope="module", name="held")
def _held(env):
    """The state in which the expert's blade has just brought the slab over its place."""
    drawn = sample_scene(env.task, 1, tool="turner", object="brownie", randomization=LEVEL)
    scene = with_place(drawn, 0.08)
    observation, info = env.reset(options={"scene": scene})
    expert = ExpertPolicy(env)
    expert.reset()
    while not info["success"] or off_place_m(env) > 0.01:
        assert info["outcome"] == "running"
        observation, *_, info = env.step(expert.act(observation))
    return replace(env.get_state(), steps_held=0)


def off_place_m(env: ToolUseEnv) -> float:
    """Returns the horizontal distance of the slab's middle from the marked place, m."""
    goal = marked_place(env.scene)
    assert goal is not None
    return float(np.linalg.norm((env.world_state().p_W_object["base"] - goal)[:2]))


def placed(env: ToolUseEnv, state: EnvState, X_WO: RigidTransform, v_WO=(0, 0, 0)) -> EnvState:
    """Returns a state with the slab at another pose and velocity."""
    return with_bodies(env, state, slab=(X_WO, v_WO))


def above(X_WO: RigidTransform, by_m: float) -> RigidTransform:
    return RigidTransform([0.0, 0.0, by_m]) @ X_WO


def follow(
    env: ToolUseEnv, state: EnvState, steps: int = 2 * SECOND, action: np.ndarray = STAY
) -> tuple[list[WorldState], str]:
    """Continues from a state for some steps; returns the state after each, and the outcome."""
    env.set_state(state)
    states, outcome = [], ""
    for _ in range(steps):
        outcome = env.step(action)[-1]["outcome"]
        states.append(env.world_state())
        if outcome != "running":
            break
    return states, outcome


def violated(env: ToolUseEnv, state: WorldState) -> set[str]:
    """Returns the types of the success predicates that do not hold."""
    assert env._episode is not None
    initial = env._episode.initial
    return {each.type for each in env.task.success if not judge(each, initial, state).holds}


# --- Success --------------------------------------------------------------------------------


def test_a_slab_that_rests_on_the_blade_for_a_second_is_lifted(env, held):
    states, outcome = follow(env, held)
    assert (outcome, len(states)) == ("success", SECOND)
    assert all(not violated(env, state) for state in states)


def test_a_slab_may_be_moved_while_it_is_held(env, held):
    sideways = np.array([0.0, 0.05, 0.0, 0.0, 0.0, 0.0], np.float32)
    assert follow(env, held, action=sideways)[1] == "success"


def with_place(scene: Scene, distance_m: float, bearing_deg: float = -60.0) -> Scene:
    place = Place(distance_m=distance_m, bearing_deg=bearing_deg)
    return scene.model_copy(update={"place": place})


def test_a_place_beyond_those_of_training_is_reached_without_losing_the_slab(env):
    scene = with_place(sample_scene(env.task, 1, tool="turner", object="brownie"), 0.25)
    observation, info = env.reset(options={"scene": scene.model_dump(mode="json")})
    expert = ExpertPolicy(env)
    expert.reset()
    while info["outcome"] == "running":
        observation, *_, info = env.step(expert.act(observation))
    assert info["outcome"] == "success" and expert.info["retreats"] == 0
    assert off_place_m(env) <= 0.03


def test_lifted_but_not_carried(env, held):
    states, outcome = follow(env, replace(held, scene=with_place(held.scene, 0.2)))
    assert outcome == "running"
    assert all(violated(env, state) == {"keypoint_over_place"} for state in states[1:])


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (None, "lacks the place of the object"),
        (Place(distance_m=1.5, bearing_deg=0.0), "outside the workspace"),
    ],
)
def test_a_scene_needs_a_place_on_the_table(env, place, message):
    scene = sample_scene(env.task, 1).model_copy(update={"place": place})
    with pytest.raises(ConfigError, match=message):
        env.reset(options={"scene": scene})


def test_the_mark_lies_at_the_place_and_touches_nothing(env, held):
    env.set_state(held)
    world = env.simulation.world
    (mark,) = world.bodies(world.plant.GetModelInstanceByName("place"))
    p_W = world.plant.EvalBodyPoseInWorld(env.simulation._context, mark).translation()
    np.testing.assert_array_equal(p_W, env.world_state().p_W_place)
    assert not world.plant.GetCollisionGeometriesForBody(mark)


@needs_gl
def test_cameras_see_the_mark_and_segment_it_as_table(make):
    size = (160, 120)
    seen = {"obs_mode": "rgbd", "camera_size": size, "channels": ["rgb", "segmentation"]}
    env = make("FleetTools/Spatula-v0", tool="turner", object="brownie", **seen)
    scene = sample_scene(env.task, 1, tool="turner", object="brownie")
    images = []
    for bearing_deg in (-60.0, -90.0):  # at the second, the first is table
        placed_elsewhere = with_place(scene, 0.2, bearing_deg)
        observation, _ = env.reset(options={"scene": placed_elsewhere})
        images.append(observation)
    goal = marked_place(with_place(scene, 0.2, -60.0))
    u, v = env.find_view("overhead", size).project(np.array(goal)).round().astype(int)
    (red, green, _), table = (each["overhead_rgb"][v, u].astype(int) for each in images)
    assert red > 1.5 * green and np.ptp(table) < 0.5 * (red - green)
    assert [each["overhead_segmentation"][v, u] for each in images] == [0, 0]


# --- States that only look like success -----------------------------------------------------


def test_thrown_up(env, held):
    env.reset(options={"scene": held.scene})
    start, X_WO = env.get_state(), env.world_state().X_WO
    states, outcome = follow(env, placed(env, start, above(X_WO, 0.001), v_WO=(0, 0, 2.5)))
    heights = [state.p_W_object["base"][2] for state in states]
    assert max(heights) > 0.15 and states[-1].in_contact("object", "table")
    assert outcome == "running" and all(violated(env, state) for state in states)


def test_thrown_up_from_the_blade(env, held):
    env.set_state(held)
    X_WO = env.world_state().X_WO
    states, outcome = follow(env, placed(env, held, X_WO, v_WO=(0, 0, 2.0)), steps=SECOND)
    assert outcome == "running" and not states[0].in_contact("object", "tool")
    assert "contact" in violated(env, states[0])


@pytest.mark.parametrize(("by_m", "expected"), [(-0.4, "object_lost"), (-0.03, "running")])
def test_fallen_through_blade_or_table(env, held, by_m, expected):
    env.set_state(held)
    below = above(env.world_state().X_WO, by_m)
    states, outcome = follow(env, placed(env, held, below))
    assert outcome == expected
    assert states[-1].in_contact("object", "table") == (outcome == "running")
    assert all(violated(env, state) for state in states)


def test_dropped_after_it_was_lifted(env, held):
    roll = np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0], np.float32)
    states, outcome = follow(env, held, action=roll)
    assert outcome == "running" and "keypoint_raised" in violated(env, states[-1])
    assert not states[-1].in_contact("object", "tool")


def test_sliding_off(env, held):
    icy = held.scene.model_copy(update={"tool_friction_scale": 0.01})
    states, outcome = follow(env, replace(held, scene=icy))
    assert outcome == "running" and not states[-1].in_contact("object", "tool")
    assert any(violated(env, state) == {"still"} for state in states)


def test_lying_on_the_hand(env, held):
    env.set_state(held)
    over = RigidTransform(env.world_state().X_WE @ [0.0, 0.06, -0.125])
    states, outcome = follow(env, placed(env, held, over))
    assert outcome == "running"
    for state in states:
        assert state.in_contact("object", "robot")
        # It is raised and at rest, though.
        assert violated(env, state) == {"contact", "keypoints_near", "keypoint_over_place"}


def test_lying_on_the_handle(env, held):
    env.set_state(held)
    state = env.world_state()
    along = state.p_W_tool["edge"] - state.p_W_tool["heel"]
    tail = RigidTransform(state.p_W_tool["tail"] + 0.033 * along / np.linalg.norm(along))
    states, outcome = follow(env, placed(env, held, above(tail, 0.0101)))
    assert states[-1].in_contact("object", "tool")
    # It is raised and held, but not by the blade.
    assert violated(env, states[-1]) == {"keypoints_near", "keypoint_over_place"}
    assert outcome == "running"


def test_upside_down(env, held):
    env.set_state(held)
    state = env.world_state()
    p_WTop = state.p_W_object["top"] + [0.0, 0.0, 0.001]
    turned = RigidTransform(RotationMatrix.MakeXRotation(np.pi), p_WTop)
    states, outcome = follow(env, placed(env, held, turned))
    assert violated(env, states[-1]) == {"axis_upright"}
    assert outcome == "running"
