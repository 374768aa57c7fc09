"""Rewards: sparse ones, and dense ones by the change of a potential.

    sparse = 1 in the step that ends the episode as a success, else 0
    dense  = sparse + potential(after the step) - potential(before it)

The potential lies in [0, 1] and depends on the present state and the start of the episode alone;
an object that has left the workspace leaves none. So an episode's dense rewards add up to 1 for
success plus the potential gained from start to end: standing still earns 0, a way that leads back
0, more progress always more, and a success more than any failure in the same scene. This is
potential-based shaping (Ng, Harada and Russell, "Policy invariance under reward transformations",
ICML 1999) without a discount. Theirs returns to a potential of 0 at the end, and so leaves the
order of policies as the sparse rewards have it; here, failures differ by how far they came.

The potential is the mean of two terms, which a task file declares for other purposes:

- alignment, of the tool with the pose in which it acts: the expert's `actuation.constraints`;
- progress, of the goals among the success predicates, times the conditions'. Conditions are
  those that hold at the start, such as that the object is upright and still, and contacts, which
  come and go at once. As factors, they count once there is progress to lose: added, the former
  would punish the first motion, and the latter would reward any touch more than coming nearer.
"""

import math
from collections.abc import Sequence

import numpy as np

from fleet_tools.config.expert import AxisToAxis, KeypointTerm, PointToPoint
from fleet_tools.config.predicates import Contact, Predicate
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.envs.outcomes import OBJECT_LOST, SUCCESS
from fleet_tools.envs.success import judge
from fleet_tools.sim.world_state import WorldState

HALF_DISTANCE_M = 0.1
"""Distance of two keypoints beyond its tolerance at which their closeness is one half."""
HALF_ANGLE_DEG = 30.0
"""Likewise for the angle between two axes."""


def sparse(outcome: str) -> float:
    """Returns 1 if a step's outcome is a success, else 0."""
    return float(outcome == SUCCESS)


def dense(
    task: TaskConfig, outcome: str, initial: WorldState, before: WorldState, now: WorldState
) -> float:
    """Returns the sparse reward and the potential gained in a step.

    Args:
        task: The task.
        outcome: Outcome after the step.
        initial: State at the start of the episode.
        before: State before the step.
        now: State after it.
    """
    after = 0.0 if outcome == OBJECT_LOST else potential(task, initial, now)
    return sparse(outcome) + after - potential(task, initial, before)


def potential(task: TaskConfig, initial: WorldState, now: WorldState) -> float:
    """Returns the mean of alignment and progress, in [0, 1]."""
    aligned = alignment(task.expert.actuation.constraints, now)
    return 0.5 * (aligned + progress(task.success, initial, now))


def alignment(terms: Sequence[KeypointTerm], now: WorldState) -> float:
    """Returns the mean closeness of the terms, in (0, 1]; it is 1 within their tolerances."""
    return sum(_closeness(term, now) for term in terms) / len(terms)


def progress(predicates: Sequence[Predicate], initial: WorldState, now: WorldState) -> float:
    """Returns the mean progress of goals times the conditions', in [0, 1].

    Conditions are contacts and the predicates that hold initially, goals the others.
    """
    goals: list[float] = []
    conditions: list[float] = []
    for each in predicates:
        is_condition = isinstance(each, Contact) or judge(each, initial, initial).holds
        (conditions if is_condition else goals).append(judge(each, initial, now).progress)
    return _mean(goals) * _mean(conditions)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 1.0


def _closeness(term: KeypointTerm, now: WorldState) -> float:
    match term:
        case PointToPoint():
            excess, half = distance_m(term, now) - term.tolerance_m, HALF_DISTANCE_M
        case AxisToAxis():
            excess, half = angle_deg(term, now) - term.tolerance_deg, HALF_ANGLE_DEG
    return half / (half + max(excess, 0.0))


def distance_m(term: PointToPoint, now: WorldState) -> float:
    """Returns the distance of the tool's keypoint from its goal, m."""
    p_WQ = now.p_W_object[term.object] + now.X_WO.rotation() @ np.array(term.offset_m)
    return math.hypot(*(now.p_W_tool[term.tool] - p_WQ))


def angle_deg(term: AxisToAxis, now: WorldState) -> float:
    """Returns the deviation of the angle between the axes from the desired one, deg."""
    a_W = _axis(term.tool, now.p_W_tool)
    b_W = np.array(term.world) if term.object is None else _axis(term.object, now.p_W_object)
    angle = math.degrees(math.atan2(math.hypot(*np.cross(a_W, b_W)), sum(a_W * b_W)))
    desired = abs((term.angle_deg + 180) % 360 - 180)  # the angle of two vectors has no sign
    return abs(angle - desired)


def _axis(ends: tuple[str, str], p_W: dict[str, np.ndarray]) -> np.ndarray:
    start, end = ends
    return p_W[end] - p_W[start]
