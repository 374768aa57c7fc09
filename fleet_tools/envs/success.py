"""Success: the evaluation of a task file's predicates.

Lengths and angles are computed by `math`: the bits of `np.linalg.norm` depend on the processor.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from fleet_tools.config.predicates import (
    AxisUpright,
    CausedByPart,
    Contact,
    JointDisplacement,
    KeypointOverPlace,
    KeypointRaised,
    KeypointsNear,
    KeypointsParted,
    Predicate,
    Still,
    UserFunction,
)
from fleet_tools.envs.predicate_functions import BoundFunction
from fleet_tools.errors import PredicateError, UnknownNameError
from fleet_tools.sim.attribution import PartMotion
from fleet_tools.sim.world_state import WorldState

T = TypeVar("T")


@dataclass(frozen=True)
class Verdict:
    """Whether a predicate holds, and the progress towards it, in [0, 1]."""

    holds: bool
    progress: float


def judge(predicate: Predicate, initial: WorldState, now: WorldState) -> Verdict:
    """Evaluates one predicate.

    Args:
        predicate: Predicate from the task file.
        initial: State at the start of the episode.
        now: State in which the predicate is evaluated.

    Raises:
        UnknownNameError: The predicate names what the world does not have.
        PredicateError: A function of a user's own raised an error, or returned something else
            than a bool or a verdict.
    """
    match predicate:
        case JointDisplacement(joint=joint, at_least=threshold):
            position = _named("joint of the object", joint, now.object_joints)
            return _reaches(position - initial.object_joints[joint], threshold)
        case KeypointsNear(tool=tool, object=object, within_m=within):
            p_W_tool = _named("keypoint of the tool", tool, now.p_W_tool)
            p_W_object = _named("keypoint of the object", object, now.p_W_object)
            return _stays_below(math.hypot(*(p_W_tool - p_W_object)), within)
        case KeypointOverPlace(object=object, within_m=within):
            if now.p_W_place is None:
                raise PredicateError(f"{predicate.type}: the scene has no marked place")
            x, y, _ = _object_point(object, now) - now.p_W_place
            return _stays_below(math.hypot(x, y), within)
        case KeypointRaised(object=object, at_least_m=threshold):
            rise = _object_point(object, now) - _object_point(object, initial)
            return _reaches(rise[2], threshold)
        case KeypointsParted(objects=pair, at_least_m=threshold):
            return _reaches(_distance(pair, now) - _distance(pair, initial), threshold)
        case AxisUpright(object=(start, end), within_deg=within):
            axis = _object_point(end, now) - _object_point(start, now)
            angle = math.degrees(math.atan2(math.hypot(*axis[:2]), axis[2]))
            return _stays_below(angle, within)
        case Contact(between=(one, other), present=present):
            for body in (one, other):
                _named("body in a contact", body, _bodies(now))
            holds = now.in_contact(one, other) == present
            return Verdict(holds, float(holds))
        case Still(seen_from=observer, below_m_s=limit):
            speeds = [_speed(p, v, observer, now) for p, v in now.links.values()]
            return _stays_below(max(speeds), limit)
        case CausedByPart(part=part, change=change):
            # Distances are not linear. The hand parts two blocks, then the tool pushes one past the
            # other: its motion alone would part them, but they are apart without it.
            motion = _named("part of the tool", part, now.part_motion)
            sufficient = judge(change, initial, _displaced(initial, motion, 1, now))
            necessary = judge(change, _displaced(now, motion, -1, initial), now)
            return Verdict(
                sufficient.holds and necessary.holds,
                min(sufficient.progress, necessary.progress),
            )
        case BoundFunction():
            return _verdict(predicate, predicate(initial, now))
        case UserFunction(function=function):
            raise PredicateError(
                f"{function} has not been imported. The environment imports it when it is made: "
                "use the predicates in env.task.success."
            )
    raise TypeError(f"no rule for {type(predicate).__name__}")


def judge_each(
    predicates: Sequence[Predicate], initial: WorldState, now: WorldState
) -> dict[str, Verdict]:
    """Evaluates a task's success predicates, each named by its place in the task file."""
    return {
        f"success[{i}] {predicate.type}": judge(predicate, initial, now)
        for i, predicate in enumerate(predicates)
    }


def conjunction(verdicts: Collection[Verdict]) -> Verdict:
    """Returns whether all verdicts hold; the progress is the mean of theirs."""
    progress = sum(verdict.progress for verdict in verdicts) / len(verdicts)
    return Verdict(all(verdict.holds for verdict in verdicts), progress)


def _displaced(start: WorldState, motion: PartMotion, sign: int, rest: WorldState) -> WorldState:
    """Returns a state with the object displaced from where it is in another state.

    Args:
        start: State from which the object is displaced.
        motion: Displacement.
        sign: 1, or -1 for the opposite displacement.
        rest: State from which everything but the object's place is taken.
    """
    return replace(
        rest,
        object_joints={
            name: start.object_joints[name] + sign * moved
            for name, moved in motion.object_joints.items()
        },
        p_W_object={
            name: start.p_W_object[name] + sign * moved for name, moved in motion.p_W_object.items()
        },
        links={
            name: (start.links[name][0] + sign * moved, rest.links[name][1])
            for name, moved in motion.links.items()
        },
    )


def _verdict(function: BoundFunction, returned: object) -> Verdict:
    """Returns what a user's function returned, as a verdict of plain numbers."""
    match returned:
        case bool() | np.bool_():
            return Verdict(bool(returned), float(returned))
        case Verdict(holds=bool() | np.bool_(), progress=int() | float() | np.floating()):
            if 0 <= returned.progress <= 1:
                return Verdict(bool(returned.holds), float(returned.progress))
    raise function.error(
        f"returned {returned!r:.300}; expected a bool, or a Verdict with a progress in [0, 1]."
    )


def _reaches(value: float, threshold: float) -> Verdict:
    return Verdict(bool(value >= threshold), float(min(max(value / threshold, 0.0), 1.0)))


def _stays_below(value: float, limit: float) -> Verdict:
    return Verdict(value <= limit, limit / max(value, limit))


def _object_point(name: str, state: WorldState) -> np.ndarray:
    return _named("keypoint of the object", name, state.p_W_object)


def _distance(pair: tuple[str, str], state: WorldState) -> float:
    one, other = (_object_point(name, state) for name in pair)
    return math.hypot(*(one - other))


def _bodies(state: WorldState) -> dict[str, None]:
    links = [f"object/{link}" for link in state.links]
    return dict.fromkeys(["robot", "tool", "table", "object", *links])


def _speed(p_W: np.ndarray, v_W: np.ndarray, observer: str, state: WorldState) -> float:
    """Returns the speed of a point relative to the world, or to the end effector."""
    if observer == "end_effector":
        w, v = state.V_WE[:3], state.V_WE[3:]
        v_W = v_W - v - np.cross(w, p_W - state.X_WE.translation())
    return math.hypot(*v_W)


def _named(what: str, name: str, values: Mapping[str, T]) -> T:
    if name not in values:
        raise UnknownNameError(what, name, values)
    return values[name]
