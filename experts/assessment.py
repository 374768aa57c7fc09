"""Assessment of an attempt, the words for it, and where the assessed states come from.

Assessment and words are pure functions of plan, predicates and state.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np

from fleet_tools.config.predicates import CausedByPart, Predicate
from fleet_tools.envs.success import Verdict, judge
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.predicate_sentences import amount, sentence
from fleet_tools.experts.problem import Plan, PlanningProblem
from fleet_tools.sim.world_state import WorldState

_UNITS = {"least": "", "m": "m", "deg": "degrees", "s": "m/s"}
"""Units of thresholds by the ends of their names; the unit of a joint depends on its kind."""

MOVED_M = 0.003
"""Largest displacement of the object, before the tool touches it, that keeps a plan valid, m."""


def unmet_predicates(
    predicates: Sequence[Predicate], initial: WorldState, present: WorldState
) -> tuple[str, ...]:
    """Returns descriptions of the predicates that do not hold."""
    verdicts = [(predicate, judge(predicate, initial, present)) for predicate in predicates]
    return tuple(
        describe(predicate, verdict) for predicate, verdict in verdicts if not verdict.holds
    )


def describe(predicate: Predicate, verdict: Verdict) -> str:
    """Describes a predicate that does not hold, and the present value.

    An example: "the object's joint `slide` has moved by at least 0.001; now 0.0003". The value
    follows from progress, which is value / threshold of what is to reach a threshold (`at_least`),
    and limit / value of what is to stay below a limit (`within`, `below`).
    """
    words, judged = sentence(predicate, lambda joint: ""), predicate
    while isinstance(judged, CausedByPart):  # its verdict is of the change
        judged = judged.change
    for name, value in judged:
        if name.startswith("at_least"):
            present = verdict.progress * value
        elif name.startswith(("within", "below")):
            present = value / max(verdict.progress, 1e-9)
        else:
            continue
        unit = _UNITS[name.rpartition("_")[2]]
        return f"{words}; now {amount(float(f'{present:.3g}'), unit)}"
    return words


class Assessment(Enum):
    """State of an attempt that has not failed."""

    ON_TRACK = auto()
    OBJECT_MOVED = auto()
    """The object has moved since planning, and the tool has not acted on it yet."""


@dataclass(frozen=True)
class FailedAttempt:
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
) -> Assessment | FailedAttempt:
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
            return FailedAttempt(plan.leg(step), unmet)
    return Assessment.ON_TRACK


def _displacement(problem: PlanningProblem, present: WorldState) -> float:
    """Returns the largest displacement of the object's keypoints since planning, m."""
    moved = [present.p_W_object[name] - p_W for name, p_W in problem.p_W_object.items()]
    return float(np.max(np.linalg.norm(moved, axis=1)))


def explanation(
    failures: Sequence[FailedAttempt],
    planning_errors: Sequence[str],
    stage: str,
    unmet: Sequence[str],
) -> str | None:
    """Explains an episode; None if there is nothing to explain.

    Args:
        failures: The attempts that failed, in order.
        planning_errors: Messages of the planner where it found no plan.
        stage: Keyframe to which the expert was on its way at the end, or "retreat" or "planning".
        unmet: Success predicates that do not hold at the end.
    """
    if not (failures or planning_errors or unmet):
        return None
    attempts = len(failures) + (stage not in ("retreat", "planning"))
    parts = [f"{attempts} attempt{'' if attempts == 1 else 's'}"]
    parts += _failed_attempts(failures)
    parts += [f"no plan: {error}" for error in dict.fromkeys(planning_errors)]
    lacking = f"without {_joined(unmet)}" if unmet else "with all predicates of success"
    return "; ".join([*parts, f"ended in {stage} {lacking}"])


def _failed_attempts(failures: Sequence[FailedAttempt]) -> Iterator[str]:
    """Yields a description for each keyframe at which attempts failed, of the last one."""
    last = {failure.keyframe: failure for failure in failures}
    for keyframe, count in Counter(failure.keyframe for failure in failures).items():
        yield f"{count} failed at keyframe {keyframe}: {_joined(last[keyframe].unmet)}"


def _joined(descriptions: Sequence[str]) -> str:
    return " and ".join(f"({each})" for each in descriptions)


# --- Where the state comes from ---------------------------------------------------------------


class PrivilegedState:
    """A source of states: the environment's exact one.

    Another source (`perception.perceived`) has the same attributes and methods, and returns what it
    knows: None from `begin` if nothing is known before an observation, and of the predicates that
    do not hold those that it can judge.

    Args:
        env: The environment.

    Attributes:
        angle_error_deg: Error that directions between its keypoints may have, degrees.
    """

    angle_error_deg = 0.0

    def __init__(self, env: ToolUseEnv) -> None:
        self._env = env

    @property
    def objects_done(self) -> int:
        """Number of objects that are done."""
        return self._env.objects_done()

    def begin(self) -> WorldState:
        """Returns the initial state."""
        return self._env.world_state()

    def look(self, observation: dict[str, Any]) -> WorldState:
        """Returns the present state."""
        return self._env.world_state()

    def look_again(self) -> WorldState:
        """Returns the present state, found with more effort than by following its change."""
        return self._env.world_state()

    def latest(self) -> WorldState:
        """Returns the present state."""
        return self._env.world_state()

    def unmet(
        self, predicates: Sequence[Predicate], initial: WorldState, present: WorldState
    ) -> tuple[str, ...]:
        """Returns descriptions of the predicates that do not hold."""
        return unmet_predicates(predicates, initial, present)
