"""Whether an attempt still goes as planned; a pure function of plan and state."""

from enum import Enum, auto

import numpy as np

from fleet_tools.config.predicates import Predicate
from fleet_tools.envs.success import judge_all
from fleet_tools.experts.problem import Plan, PlanningProblem
from fleet_tools.sim.world_state import WorldState

MOVED_M = 0.003
"""How far from where the plan takes it to be an object may lie before the tool touches it."""


class Finding(Enum):
    """What an expert learns from looking."""

    ON_TRACK = auto()
    OBJECT_MOVED = auto()
    """It is not where the plan takes it to be, and the tool has not yet acted on it."""
    FAILED = auto()
    """What was expected at a keyframe is not so, or the plan is over without success."""


def assess(
    plan: Plan,
    problem: PlanningProblem,
    success: tuple[Predicate, ...],
    step: int,
    initial: WorldState,
    now: WorldState,
) -> Finding:
    """Judges an attempt.

    Args:
        plan: What is being followed.
        problem: What it was made from.
        success: The task's predicates.
        step: The plan's knot that should have been reached by now.
        initial: The state at the episode's start, from which predicates count.
        now: The state.
    """
    untouched = step < plan.actuation and not now.touch("tool", "object")
    if untouched and _distance_moved(problem, now) > MOVED_M:
        return Finding.OBJECT_MOVED
    for knot, expected in zip(plan.keyframes, problem.expert.expectations, strict=True):
        if knot == step and expected and not judge_all(expected, initial, now).holds:
            return Finding.FAILED
    over = step == len(plan.X_WE) - 1
    if over and not judge_all(success, initial, now).holds:
        return Finding.FAILED
    return Finding.ON_TRACK


def _distance_moved(problem: PlanningProblem, now: WorldState) -> float:
    """The farthest that any of the object's keypoints lies from where the plan takes it to be."""
    moved = [now.p_W_object[name] - p_W for name, p_W in problem.p_W_object.items()]
    return float(np.max(np.linalg.norm(moved, axis=1)))
