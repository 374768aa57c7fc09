"""Success as named predicates over the world's state; a task file composes them."""

from dataclasses import dataclass

import numpy as np

from fleet_tools.errors import UnknownNameError
from fleet_tools.state import WorldState
from fleet_tools.tasks import JointDisplacement, KeypointsNear, Predicate


@dataclass(frozen=True)
class Verdict:
    """Whether a predicate holds, and how far the world is on the way there, in [0, 1]."""

    holds: bool
    progress: float


def judge(predicate: Predicate, initial: WorldState, now: WorldState) -> Verdict:
    """Judges one predicate.

    Args:
        predicate: From the task file.
        initial: The state at the episode's start.
        now: The state to judge.

    Raises:
        UnknownNameError: The predicate names what the world has not got.
    """
    match predicate:
        case JointDisplacement(joint=joint, at_least=threshold):
            position = _named("joint of the object", joint, now.object_joints)
            moved = position - initial.object_joints[joint]
            return Verdict(moved >= threshold, min(max(moved / threshold, 0.0), 1.0))
        case KeypointsNear(tool=tool, object=object, within_m=within):
            p_W_tool = _named("keypoint of the tool", tool, now.p_W_tool)
            p_W_object = _named("keypoint of the object", object, now.p_W_object)
            distance = float(np.linalg.norm(p_W_tool - p_W_object))
            return Verdict(distance <= within, within / max(distance, within))
    raise TypeError(f"no rule for {type(predicate).__name__}")


def judge_all(predicates: tuple[Predicate, ...], initial: WorldState, now: WorldState) -> Verdict:
    """Judges the conjunction: it holds if all do, and is as far as they are on average."""
    verdicts = [judge(predicate, initial, now) for predicate in predicates]
    progress = sum(verdict.progress for verdict in verdicts) / len(verdicts)
    return Verdict(all(verdict.holds for verdict in verdicts), progress)


def _named(what: str, name: str, values: dict):
    if name not in values:
        raise UnknownNameError(what, name, values)
    return values[name]
