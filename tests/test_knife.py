"""The knife task: what counts as parted by the knife, and what only looks like it."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from pydrake.math import RigidTransform, RotationMatrix
from pydrake.multibody.math import SpatialVelocity

from fleet_tools.config.predicates import (
    AxisUpright,
    Contact,
    KeypointsNear,
    KeypointsParted,
    Still,
)
from fleet_tools.envs.success import judge
from fleet_tools.envs.tool_use_env import EnvState, ToolUseEnv
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.rollouts.episode import rollout
from fleet_tools.sim.catalog import model_names
from fleet_tools.sim.world_state import WorldState
from fleet_tools.utils.resources import task_configs_root

KNIFE = "FleetTools/Knife-v0"
REST = np.zeros(6, np.float32)
NEITHER_NEAR = {
    KeypointsNear(type="keypoints_near", tool="edge", object=f"{side}_seam", within_m=0.07)
    for side in ("left", "right")
}
NOT_PARTED = KeypointsParted(type="keypoints_parted", objects=("left", "right"), at_least_m=0.05)
MOVING = Still(type="still", seen_from="world", below_m_s=0.01)
TOPPLED = AxisUpright(type="axis_upright", object=("left_foot", "left"), within_deg=5)


def contact(one, other, present=True):
    return Contact(type="contact", between=(one, other), present=present)


@dataclass(frozen=True)
class Bench:
    """An environment, and two states of one episode: its start, and the expert's success."""

    env: ToolUseEnv
    initial: WorldState
    start: EnvState
    success: EnvState

    def enter(self, state: EnvState, **blocks) -> None:
        """Goes to a state, running, with blocks elsewhere: pose, or pose and velocity, by link."""
        plant = self.env._simulation.world.plant
        context = plant.CreateDefaultContext()
        plant.SetPositionsAndVelocities(context, state.snapshot.x)
        for link, place in blocks.items():
            X_WB, v_W = place if isinstance(place, tuple) else (place, np.zeros(3))
            body = plant.GetBodyByName(link)
            plant.SetFreeBodyPose(context, body, X_WB)
            plant.SetFreeBodySpatialVelocity(context, body, SpatialVelocity(np.zeros(3), v_W))
        snapshot = replace(state.snapshot, step=0, x=plant.GetPositionsAndVelocities(context))
        self.env.set_state(
            replace(state, snapshot=snapshot, outcome="running", holding=0, success_once=False)
        )

    def pose(self, link: str, state: EnvState) -> RigidTransform:
        plant = self.env._simulation.world.plant
        context = plant.CreateDefaultContext()
        plant.SetPositionsAndVelocities(context, state.snapshot.x)
        return plant.GetBodyByName(link).EvalPoseInWorld(context)

    @property
    def along(self) -> np.ndarray:
        """The seam's direction at the start."""
        return self.env.scene.object_pose.to_transform().rotation() @ [1, 0, 0]

    @property
    def across(self) -> np.ndarray:
        """From the right block to the left one, at the start."""
        return self.env.scene.object_pose.to_transform().rotation() @ [0, 1, 0]

    def broken(self) -> set:
        """The success predicates that do not hold now."""
        now = self.env.world_state()
        return {p for p in self.env.task.success if not judge(p, self.initial, now).holds}

    def wait(self, action=REST, steps=6) -> bool:
        """Whether the episode succeeds while the same action is repeated."""
        return any([self.env.step(action)[4]["success"] for _ in range(steps)])

    def action_across(self, distance_m: float) -> np.ndarray:
        """Moves the hand sideways, in one control step."""
        R_WE = self.env.world_state().X_WE.rotation()
        motion = np.r_[R_WE.inverse() @ (distance_m * self.across), np.zeros(3)]
        return np.float32(motion / self.env.action_scale)


@pytest.fixture(scope="module", name="bench")
def _bench(make) -> Bench:
    # High blocks and a level hand, so that the fingers come low enough to push them.
    nominal = {"object_pose": False, "tool_in_hand": False}
    env = make(KNIFE, tool="chef", object="rye_bread", randomization=nominal)
    env.reset(seed=1)
    start, initial = env.get_state(), env.world_state()
    assert rollout(env, ExpertPolicy(env), seed=1).outcome == "success"
    return Bench(env, initial, start, env.get_state())


def moved(X_WB: RigidTransform, p_W) -> RigidTransform:
    return RigidTransform(X_WB.rotation(), X_WB.translation() + p_W)


def test_what_the_expert_leaves_is_a_success_that_lasts(bench):
    bench.enter(bench.success)
    assert not bench.broken()
    for step in range(3):
        *_, info = bench.env.step(REST)
        assert info["success"] and info["outcome"] == ("success" if step == 2 else "running")


def test_the_start_is_none(bench):
    bench.enter(bench.start)
    assert contact("object/left", "object/right", False) in bench.broken()
    assert not bench.wait(steps=12)


def test_parted_by_too_little(bench):
    closer = moved(bench.pose("right", bench.success), 0.02 * bench.across)
    bench.enter(bench.success, right=closer)
    assert bench.broken() == {NOT_PARTED}
    assert not bench.wait()


def test_side_by_side_along_the_seam_is_not_parted(bench):
    X_WB = moved(bench.pose("left", bench.start), 0.05 * bench.along)
    bench.enter(bench.start, left=X_WB)
    assert {NOT_PARTED, contact("object/left", "object/right", False)} <= bench.broken()
    assert not bench.wait()


def test_in_the_air(bench):
    bench.enter(bench.success, left=moved(bench.pose("left", bench.success), [0, 0, 0.03]))
    assert bench.broken() == {contact("object/left", "table")}


def test_thrown(bench):
    away = 0.5 * bench.across
    bench.enter(bench.success, left=(bench.pose("left", bench.success), away))
    assert bench.broken() == {MOVING}
    thrown = bench.pose("left", bench.success), 3 * away + [0, 0, 2.0]
    bench.enter(bench.success, left=thrown)
    assert not bench.wait(steps=18)


def test_knocked_apart_without_the_blade(bench):
    bench.enter(bench.start, left=(bench.pose("left", bench.start), 1.2 * bench.across))
    assert not bench.wait(steps=9)
    assert bench.broken() == NEITHER_NEAR


def test_off_the_table(bench):
    p_W = bench.pose("left", bench.success).translation()
    beyond = moved(bench.pose("left", bench.success), [0, 0.85 - p_W[1], 0])
    bench.enter(bench.success, left=beyond)
    assert not bench.wait()
    assert {contact("object/left", "table"), MOVING} <= bench.broken()


def test_fallen_through_the_table(bench):
    below = moved(bench.pose("left", bench.success), [0, 0, -0.10])
    bench.enter(bench.success, left=below)
    assert contact("object/left", "table") in bench.broken()
    assert not bench.wait()


def test_toppled(bench):
    X_WB = bench.pose("left", bench.success)
    lying = moved(X_WB, [0, 0, 0.031]) @ RigidTransform(RotationMatrix.MakeXRotation(-np.pi / 2))
    bench.enter(bench.success, left=lying)
    assert not bench.wait(steps=9)
    assert TOPPLED in bench.broken()


def test_parted_by_the_hand(bench):
    """The blocks stand on both sides of the fingers, which push one of them away."""
    bench.enter(bench.success)
    hand = bench.env.world_state().X_WE.translation() * [1, 1, 0]
    R_WB = bench.pose("left", bench.success).rotation()
    left = RigidTransform(R_WB, hand + (0.030 + 0.044) * bench.across)
    right = RigidTransform(R_WB, hand - (0.025 + 0.044) * bench.across)
    bench.enter(bench.success, left=left, right=right)
    start = bench.env.world_state().p_W_object["left"]
    assert not bench.wait(bench.action_across(0.01), steps=4)
    assert np.linalg.norm(bench.env.world_state().p_W_object["left"] - start) > 0.02
    assert NEITHER_NEAR | {contact("robot", "object", False)} <= bench.broken()
    assert NOT_PARTED not in bench.broken()
    assert not bench.wait()


def test_touched_by_the_hand(bench):
    """The blade parted them, but the hand rests against one."""
    bench.enter(bench.success)
    state = bench.env.world_state()
    X_WB = bench.pose("left", bench.success)
    to_hand = (state.X_WE.translation() - X_WB.translation()) @ bench.along
    to_hand += 0.04 + 0.010 - 0.002  # half a block, half a finger, less than touching
    bench.enter(bench.success, left=moved(X_WB, to_hand * bench.along))
    assert contact("robot", "object", False) in bench.broken()


def test_the_blade_does_not_pass_through_a_block(bench):
    """Swept sideways at the full speed of the action bounds."""
    bench.enter(bench.success)
    for _ in range(4):
        bench.env.step(bench.action_across(0.05))
        state = bench.env.world_state()
        ahead = (state.p_W_object["left_seam"] - state.p_W_tool["edge"]) @ bench.across
        assert ahead > -0.003
    assert bench.broken() >= {MOVING}


@pytest.mark.parametrize("name", model_names("object", "pair"))
def test_blocks_touch_and_rest_until_they_are_parted(make, name):
    env = make(KNIFE, tool="chef", object=name)
    env.reset(seed=2)
    before = env.world_state()
    assert before.touch("object/left", "object/right")
    for _ in range(12):
        env.step(REST)
        speeds = [np.linalg.norm(v) for _, v in env.world_state().links.values()]
        assert max(speeds) < 1e-3
    for key, p_W in env.world_state().p_W_object.items():
        assert np.linalg.norm(p_W - before.p_W_object[key]) < 1e-4, key


def test_either_block_may_be_pushed(tmp_path):
    text = (task_configs_root() / "knife.yaml").read_text()
    mirrored = text.replace("by_m: [0, 0.060, 0]", "by_m: [0, -0.060, 0]")
    assert mirrored != text
    (tmp_path / "mirrored.yaml").write_text(mirrored)
    env = ToolUseEnv(str(tmp_path / "mirrored.yaml"))
    assert rollout(env, ExpertPolicy(env), seed=0).outcome == "success"
