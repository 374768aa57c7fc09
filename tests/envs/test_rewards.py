"""Rewards: the potential and its terms, and what episodes' rewards add up to."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydrake.math import RigidTransform
from support.environments import IDS
from support.planning_problems import planning_problem, poses
from support.processes import ROOT

from fleet_tools.config.expert import PointToPoint
from fleet_tools.config.predicates import AxisUpright, Contact, KeypointsNear, Still
from fleet_tools.config.tasks import task_names
from fleet_tools.envs import rewards
from fleet_tools.envs.outcomes import OBJECT_LOST, RUNNING
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.conditions import AxisAtAngle, PointNearPoint, condition
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.experts.problem import PlanningProblem
from fleet_tools.policies.policy import RandomPolicy
from fleet_tools.registration import CUSTOM_ID
from fleet_tools.robot.pose_delta import displacement
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.world_state import WorldState

Make = Callable[..., ToolUseEnv]

STILL = np.zeros(6, np.float32)
BASKET = str(ROOT / "examples" / "basket" / "task.yaml")
OF_TASKS = [(env_id, {}) for env_id in IDS] + [(CUSTOM_ID, {"task": BASKET})]
"""Ids and arguments of environments: the package's tasks, and one of a user's own."""

each_task = pytest.mark.parametrize("made", OF_TASKS, ids=lambda made: made[0].split("/")[1])


def potential(env: ToolUseEnv, initial: WorldState) -> float:
    """Returns the potential of the environment's present state."""
    return rewards.potential(env.task, initial, env.world_state())


@pytest.fixture(scope="module", name="initial")
def _initial(hammer: ToolUseEnv) -> WorldState:
    """The start of an episode of the hammer."""
    hammer.reset(seed=0)
    return hammer.world_state()


# --- Alignment ------------------------------------------------------------------------------


@pytest.fixture(scope="module", name="place")
def _place(initial: WorldState) -> Callable[[PlanningProblem, RigidTransform], WorldState]:
    """A function that returns a state with the keypoints of a problem, and the hand at a pose."""

    def place(problem: PlanningProblem, X_WE: RigidTransform) -> WorldState:
        return replace(
            initial,
            p_W_tool={name: X_WE @ p for name, p in problem.p_E_tool.items()},
            p_W_object=dict(problem.p_W_object),
            X_WO=problem.X_WO,
        )

    return place


@given(st.sampled_from(task_names()), st.integers(0, 3), poses)
def test_alignment_is_judged_by_the_experts_errors(place, task, seed, X_WE):
    problem = planning_problem(seed, task)
    state = place(problem, X_WE)
    terms = problem.expert.actuation.constraints
    ratios = []
    for term in terms:
        expected = condition(term, problem)
        ratios.append(expected.ratio(X_WE))
        if isinstance(term, PointToPoint):
            assert isinstance(expected, PointNearPoint)
            assert rewards.distance_m(term, state) == pytest.approx(expected.error_m(X_WE))
        else:
            assert isinstance(expected, AxisAtAngle)
            assert rewards.angle_deg(term, state) == pytest.approx(
                expected.error_deg(X_WE), abs=1e-6
            )
    aligned = rewards.alignment(terms, state)
    assert 0.0 < aligned <= 1.0
    assert (aligned == 1.0) == (max(ratios) <= 1.0)


@given(st.integers(0, 3), poses, poses)
def test_alignment_is_the_same_from_wherever_one_looks(place, seed, X_WE, X_VW):
    problem = planning_problem(seed, "wrench")  # whose terms name no axis of the world
    p_V_object = {name: X_VW @ p for name, p in problem.p_W_object.items()}
    moved = replace(problem, p_W_object=p_V_object, X_WO=X_VW @ problem.X_WO)
    terms = problem.expert.actuation.constraints
    found = rewards.alignment(terms, place(moved, X_VW @ X_WE))
    assert found == pytest.approx(rewards.alignment(terms, place(problem, X_WE)), abs=1e-6)


@given(poses, st.lists(st.floats(0.0, 1.0), min_size=2, max_size=5, unique=True))
def test_the_nearer_a_keypoint_the_better_aligned(place, X_WE, distances):
    problem = planning_problem(0, "hammer")
    terms = [
        term for term in problem.expert.actuation.constraints if isinstance(term, PointToPoint)
    ]
    (term,) = terms
    goal = problem.object_point(term.object)
    start = X_WE @ problem.tool_point(term.tool)
    away = (start - goal) / np.linalg.norm(start - goal)

    def aligned(distance: float) -> float:
        p = goal + distance * away - start
        return rewards.alignment(terms, place(problem, RigidTransform(p) @ X_WE))

    found = [aligned(distance) for distance in sorted(distances)]
    assert found == sorted(found, reverse=True)
    half = aligned(term.tolerance_m + rewards.HALF_DISTANCE_M)
    assert half == pytest.approx(0.5)


# --- Progress -------------------------------------------------------------------------------

NEAR = KeypointsNear(type="keypoints_near", tool="head", object="head", within_m=0.02)
UPRIGHT = AxisUpright(type="axis_upright", object=("base", "head"), within_deg=5)
TOUCHED = Contact(type="contact", between=("tool", "object"))
STILL_IN_HAND = Still(type="still", seen_from="end_effector", below_m_s=0.01)


@given(st.floats(0.01, 10.0), st.floats(0.01, 1.0))
def test_progress_is_that_of_the_goals_times_that_of_the_conditions(initial, speed_m_s, distance_m):
    moving = replace(
        initial,
        V_WE=np.array([0.0, 0.0, 0.0, speed_m_s, 0.0, 0.0]),
        p_W_tool={"head": initial.p_W_object["head"] + [distance_m, 0.0, 0.0]},
    )
    near, still = min(0.02 / distance_m, 1.0), 0.01 / speed_m_s
    found = rewards.progress((NEAR, UPRIGHT, STILL_IN_HAND), initial, moving)
    assert found == pytest.approx(near * (1.0 + still) / 2.0)
    assert rewards.progress((NEAR,), initial, moving) == pytest.approx(near)
    assert rewards.progress((STILL_IN_HAND,), initial, moving) == pytest.approx(still)
    untouched = rewards.progress((NEAR, UPRIGHT, STILL_IN_HAND, TOUCHED), initial, moving)
    assert untouched == pytest.approx(near * (1.0 + still) / 3.0)
    touched = replace(moving, contacts=moving.contacts | {("object", "tool")})
    assert rewards.progress((NEAR, TOUCHED), initial, touched) == pytest.approx(near)


# --- Episodes -------------------------------------------------------------------------------


@each_task
def test_rewards_add_up_to_the_potential_gained(make: Make, made) -> None:
    env = make(made[0], reward="dense", **made[1])
    policy = RandomPolicy(env, seed=1)
    env.reset(seed=1)
    initial, total = env.world_state(), 0.0
    start = potential(env, initial)
    for _ in range(8):
        total += env.step(policy.act({}))[1]
        now = potential(env, initial)
        assert 0.0 <= now <= 1.0
        assert total == pytest.approx(now - start, abs=1e-12)


@each_task
def test_standing_still_earns_nothing(make: Make, made) -> None:
    env = make(made[0], reward="dense", **made[1])
    env.reset(seed=0)
    assert abs(sum(env.step(STILL)[1] for _ in range(12))) < 0.002


def test_a_way_back_earns_what_the_way_there_cost(make: Make) -> None:
    env = make(reward="dense", tool="claw", object="round_nail")
    env.reset(seed=0)
    X_WE = env.world_state().X_WE
    for _ in range(3):  # a rewarded way there, each time
        there = sum(env.step(action)[1] for action in [np.eye(6, dtype=np.float32)[2]] * 3)
        back = 0.0
        for _ in range(10):
            action = displacement(env.world_state().X_WE, X_WE) / env.action_scale
            back += env.step(np.clip(action, -1, 1).astype(np.float32))[1]
        assert abs(there) > 0.01
        assert abs(there + back) < 0.002


def test_rewards_are_a_function_of_the_state(make: Make) -> None:
    env = make(reward="dense", tool="claw", object="round_nail")
    other = make(reward="dense", obs_mode="multitask_state")
    env.reset(seed=3)
    policy = ExpertPolicy(env)
    policy.reset()
    for _ in range(4):
        env.step(policy.act({}))
    branch, actions, expected = env.get_state(), [], []
    terminated = False
    while not terminated:
        actions.append(policy.act({}))
        _, reward, terminated, truncated, _ = env.step(actions[-1])
        assert not truncated
        expected.append(reward)
    other.reset(seed=0)
    other.step(STILL)
    other.set_state(branch)
    assert [other.step(action)[1] for action in actions] == expected


def test_sparse_rewards_are_the_success_of_the_episode(make: Make) -> None:
    env = make("FleetTools/Spatula-v0")  # whose predicates must hold for several steps
    episode = rollout(env, ExpertPolicy(env), seed=0)
    assert episode.outcome == "success" and episode.success[-env.task.success_steps :].all()
    assert episode.rewards[-1] == 1.0 and not episode.rewards[:-1].any()


@each_task
def test_a_success_earns_more_than_any_failure_can(make: Make, made) -> None:
    env = make(made[0], reward="dense", **made[1])
    env.reset(seed=0)
    start = potential(env, env.world_state())
    episode = rollout(env, ExpertPolicy(env), seed=0)
    assert episode.outcome == "success"
    most = 1.0 - start  # that any failure gains
    assert most < episode.rewards.sum() <= most + 1.0
    assert episode.rewards.sum() > most + 0.8  # a success leaves little to gain
    assert episode.rewards.min() > -0.05  # and the way there leads upwards


def test_a_lost_object_takes_its_potential_along(hammer: ToolUseEnv, initial: WorldState) -> None:
    start = rewards.potential(hammer.task, initial, initial)
    assert start > 0.1
    lost = rewards.dense(hammer.task, OBJECT_LOST, initial, initial, initial)
    assert lost == -start
    assert rewards.dense(hammer.task, RUNNING, initial, initial, initial) == 0.0
