"""The knife task: blocks parted by the knife, and states that only look like success."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from pydrake.math import RigidTransform, RotationMatrix
from support.environments import Placement, with_bodies

from fleet_tools.config.file_access import task_configs_root
from fleet_tools.config.predicates import (
    AxisUpright,
    CausedByPart,
    Contact,
    KeypointsNear,
    KeypointsParted,
    Predicate,
    Still,
)
from fleet_tools.envs.episode_state import EnvState
from fleet_tools.envs.success import judge
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.catalog import model_names
from fleet_tools.sim.world_state import WorldState

KNIFE = "FleetTools/Knife-v0"
REST = np.zeros(6, np.float32)


def text(predicate: Predicate) -> str:
    """Returns a predicate as text, for sets."""
    return predicate.to_json()


def contact(one: str, other: str, present: bool = True) -> str:
    return text(Contact(type="contact", between=(one, other), present=present))


def near(seam: str) -> str:
    return text(KeypointsNear(type="keypoints_near", tool="edge", object=seam, within_m=0.07))


NEAR = {near("left_seam"), near("right_seam")}
PARTED = text(KeypointsParted(type="keypoints_parted", objects=("left", "right"), at_least_m=0.05))
CAUSED = text(
    CausedByPart(
        type="caused_by_part",
        part="blade",
        change=KeypointsParted(
            type="keypoints_parted", objects=("left", "right"), at_least_m=0.045
        ),
    )
)
STILL = text(Still(type="still", seen_from="world", below_m_s=0.01))
UPRIGHT = text(AxisUpright(type="axis_upright", object=("left_foot", "left"), within_deg=5))


@dataclass(frozen=True)
class Bench:
    """An environment, and two states of one episode: its start, and the expert's success."""

    env: ToolUseEnv
    initial: WorldState
    start: EnvState
    success: EnvState

    def enter(self, state: EnvState, **blocks: Placement) -> None:
        """Restores a state in a running episode, with some blocks placed elsewhere, by link."""
        placed = with_bodies(self.env, state, **blocks)
        snapshot = replace(placed.snapshot, step=0)
        self.env.set_state(
            replace(placed, snapshot=snapshot, outcome="running", steps_held=0, success_once=False)
        )

    def pose(self, link: str, state: EnvState) -> RigidTransform:
        plant = self.env.simulation.world.plant
        context = plant.CreateDefaultContext()
        plant.SetPositionsAndVelocities(context, state.snapshot.x)
        return plant.GetBodyByName(link).EvalPoseInWorld(context)

    @property
    def along(self) -> np.ndarray:
        """Direction of the seam at the start."""
        return self.env.scene.object_pose.to_transform().rotation() @ [1, 0, 0]

    @property
    def across(self) -> np.ndarray:
        """Direction from the right block to the left one at the start."""
        return self.env.scene.object_pose.to_transform().rotation() @ [0, 1, 0]

    def violated(self) -> set[str]:
        """Returns the success predicates that do not hold now."""
        now = self.env.world_state()
        return {text(p) for p in self.env.task.success if not judge(p, self.initial, now).holds}

    def succeeds(self, action: np.ndarray = REST, steps: int = 6) -> bool:
        """Returns whether the episode succeeds while the same action is repeated."""
        for _ in range(steps):
            *_, info = self.env.step(action)
            if info["success"] or info["outcome"] == "object_lost":
                return info["success"]
        return False

    def action_across(self, distance_m: float) -> np.ndarray:
        """Returns the action that moves the hand sideways."""
        R_WE = self.env.world_state().X_WE.rotation()
        motion = np.r_[R_WE.inverse() @ (distance_m * self.across), np.zeros(3)]
        return (motion / self.env.action_scale).astype(np.float32)


@pytest.fixture(scope="module", name="bench")
def _bench(make) -> Bench:
    # High blocks and a level hand, so that the fingers come low enough to push them.
    nominal = {"object_pose": False, "tool_in_hand": False}
    env = make(KNIFE, tool="chef", object="rye_bread", randomization=nominal)
    env.reset(seed=1)
    start, initial = env.get_state(), env.world_state()
    assert rollout(env, ExpertPolicy(env), seed=1).outcome == "success"
    return Bench(env, initial, start, env.get_state())


def moved(X_WB: RigidTransform, p_W: Sequence[float] | np.ndarray) -> RigidTransform:
    return RigidTransform(X_WB.rotation(), X_WB.translation() + p_W)


def test_the_experts_success_lasts(bench):
    bench.enter(bench.success)
    assert not bench.violated()
    for step in range(3):
        *_, info = bench.env.step(REST)
        assert info["success"] and info["outcome"] == ("success" if step == 2 else "running")


def over(bench: Bench, by_m: Sequence[float]) -> RigidTransform:
    """Returns the left block's pose after success, displaced."""
    return moved(bench.pose("left", bench.success), by_m)


LYING = RigidTransform(RotationMatrix.MakeXRotation(-np.pi / 2))
APART = contact("object/left", "object/right", False)
STANDING = contact("object/left", "table")
PLACED = {
    "parted by too little": (
        lambda b: {"right": moved(b.pose("right", b.success), 0.02 * b.across)},
        {PARTED, CAUSED},
    ),
    "in the air": (lambda b: {"left": over(b, [0, 0, 0.03])}, {STANDING}),
    "fallen through the table": (lambda b: {"left": over(b, [0, 0, -0.10])}, {STANDING}),
    "toppled": (lambda b: {"left": over(b, [0, 0, 0.031]) @ LYING}, {UPRIGHT}),
}
"""Blocks placed otherwise after a success, and predicates that do not hold then."""


@pytest.mark.parametrize("case", PLACED)
def test_a_success_with_a_block_placed_otherwise_is_none(bench, case):
    placed, violated = PLACED[case]
    bench.enter(bench.success, **placed(bench))
    assert violated <= bench.violated()
    if case != "in the air":  # from where it may fall into a success
        assert not bench.succeeds(steps=9)
        assert violated & bench.violated()


def test_side_by_side_along_the_seam_is_not_parted(bench):
    X_WB = moved(bench.pose("left", bench.start), 0.05 * bench.along)
    bench.enter(bench.start, left=X_WB)
    assert {PARTED, APART} <= bench.violated()
    assert not bench.succeeds()


def test_thrown(bench):
    v_W = 0.5 * bench.across
    bench.enter(bench.success, left=(bench.pose("left", bench.success), v_W))
    assert bench.violated() == {STILL}
    thrown = bench.pose("left", bench.success), 3 * v_W + [0, 0, 2.0]
    bench.enter(bench.success, left=thrown)
    assert not bench.succeeds(steps=18)


def test_knocked_apart_without_the_blade(bench):
    bench.enter(bench.start, left=(bench.pose("left", bench.start), 1.2 * bench.across))
    assert not bench.succeeds(steps=9)
    assert bench.violated() == {*NEAR, CAUSED}


def test_parted_by_the_hand(bench):
    """The blocks stand on both sides of the fingers, which push one of them aside."""
    bench.enter(bench.success)
    hand = bench.env.world_state().X_WE.translation() * [1, 1, 0]
    R_WB = bench.pose("left", bench.success).rotation()
    left = RigidTransform(R_WB, hand + (0.030 + 0.044) * bench.across)
    right = RigidTransform(R_WB, hand - (0.025 + 0.044) * bench.across)
    bench.enter(bench.success, left=left, right=right)
    start = bench.env.world_state().p_W_object["left"]
    assert not bench.succeeds(bench.action_across(0.01), steps=4)
    assert np.linalg.norm(bench.env.world_state().p_W_object["left"] - start) > 0.02
    assert NEAR | {contact("robot", "object", False)} <= bench.violated()
    assert PARTED not in bench.violated()
    assert not bench.succeeds()


def test_touched_by_the_hand(bench):
    """The blade parted the blocks, but the hand rests against one."""
    bench.enter(bench.success)
    state = bench.env.world_state()
    X_WB = bench.pose("left", bench.success)
    to_hand = (state.X_WE.translation() - X_WB.translation()) @ bench.along
    to_hand += 0.04 + 0.010 - 0.002  # half a block, half a finger, less than touching
    bench.enter(bench.success, left=moved(X_WB, to_hand * bench.along))
    assert contact("robot", "object", False) in bench.violated()


def test_the_blade_does_not_pass_through_a_block(bench):
    """The blade is swept sideways at the full speed of the action bounds."""
    bench.enter(bench.success)
    for _ in range(4):
        bench.env.step(bench.action_across(0.05))
        state = bench.env.world_state()
        ahead = (state.p_W_object["left_seam"] - state.p_W_tool["edge"]) @ bench.across
        assert ahead > -0.003
    assert STILL in bench.violated()


@pytest.mark.parametrize("name", model_names("object", "pair"))
def test_blocks_touch_and_rest_until_they_are_parted(make, name):
    env = make(KNIFE, tool="chef", object=name)
    env.reset(seed=2)
    before = env.world_state()
    assert before.in_contact("object/left", "object/right")
    for _ in range(6):
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
