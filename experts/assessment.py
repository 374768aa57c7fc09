"""Assessment of an attempt: a pure function of the plan and the world's state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from fleet_tools.config.predicates import Predicate
from fleet_tools.experts.predicate_words import unmet_predicates
from fleet_tools.experts.problem import Plan, PlanningProblem
from fleet_tools.sim.world_state import WorldState

MOVED_M = 0.003
"""Largest displacement of the object, before the tool touches it, that keeps a plan valid, m."""


class Assessment(Enum):
    """State of an attempt that has not failed."""

    ON_TRACK = auto()
    OBJECT_MOVED = auto()
    """The object has moved since planning, and the tool has not acted on it yet."""


@dataclass(frozen=True)
class Failure:
    """Why an attempt has failed.

    Attributes:
        keyframe: Name of the keyframe at which it was noticed, such as "after[1]".
        unmet: Descriptions of the predicates that should hold there and do not.
    """

    keyframe: str
    unmet: tuple[str, ...]


def assess(
    plan: Plan,
    problem: PlanningProblem,
    success: tuple[Predicate, ...],
    step: int,
    initial: WorldState,
    present: WorldState,
    unmet_of: Callable[
        [Sequence[Predicate], WorldState, WorldState], tuple[str, ...]
    ] = unmet_predicates,
) -> Assessment | Failure:
    """Assesses an attempt.

    It has failed if the expectation at the keyframe that should have been reached by now does not
    hold, or if the plan has ended without success.

    Args:
        plan: The plan that is followed.
        problem: The problem that it solves.
        success: The task's success predicates.
        step: The plan's knot that should have been reached by now.
        initial: World state at the episode's start, to which predicates refer.
        present: World state now.
        unmet_of: Describes the predicates that are known not to hold.
    """
    untouched = step < plan.actuation and not present.in_contact("tool", "object")
    if untouched and _displacement(problem, present) > MOVED_M:
        return Assessment.OBJECT_MOVED
    expectations = dict(zip(plan.keyframes, problem.expert.expectations, strict=True))
    ended = step == len(plan.X_WE) - 1
    for due in (expectations.get(step, ()), success if ended else ()):
        if unmet := unmet_of(due, initial, present):
            return Failure(plan.leg(step), unmet)
    return Assessment.ON_TRACK


def _displacement(problem: PlanningProblem, present: WorldState) -> float:
    """Returns the largest displacement of the object's keypoints since planning, m."""
    moved = [present.p_W_object[name] - p_W for name, p_W in problem.p_W_object.items()]
    return float(np.max(np.linalg.norm(moved, axis=1)))
