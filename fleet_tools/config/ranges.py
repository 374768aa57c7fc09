"""The range of every number of a scene, whether it is given or drawn."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from fleet_tools.config.distributions import Choice, Uniform
from fleet_tools.config.values import MisfitError, Value
from fleet_tools.errors import shown


class Range(NamedTuple):
    """The numbers that a quantity may have, bounds included."""

    low: float
    high: float
    unit: str = ""


def _pose(reach_m: float) -> dict[str, Range]:
    return {
        "translation_m": Range(-reach_m, reach_m, " m"),
        "rpy_deg": Range(-360.0, 360.0, " degrees"),
    }


_FACTOR = Range(0.01, 100.0)
_TINT = Range(0.001, 10.0)

RANGES: dict[str, Any] = {
    "initial_joints_rad": Range(-10.0, 10.0, " rad"),
    "tool_in_hand": _pose(0.5),
    "object_pose": _pose(10.0),
    "tool_mass_scale": _FACTOR,
    "object_mass_scale": _FACTOR,
    "tool_friction_scale": _FACTOR,
    "object_friction_scale": _FACTOR,
    "joint_resistance": Range(0.001, 10_000.0, " N or N m"),
    "cameras": _pose(10.0),
    "tool_tint": _TINT,
    "object_tint": _TINT,
    "table_tint": _TINT,
    "push": {"step": Range(1, 1_000_000), "translation_m": Range(-10.0, 10.0, " m")},
}
"""By field of a scene, the range of all numbers in it; by entry or by key where they differ.

Positions reach as far as cameras see, and farther than any workspace of an arm. The robot's limits
(`fleet_tools.robot.arm_model.require_positions`) are narrower than these of its joints.
"""


def require_range(field: str, given: Any) -> Any:
    """Returns a field of a scene, or the distributions from which it is drawn.

    Args:
        field: Name of the field.
        given: Its value: numbers or distributions, alone or in tuples, mappings and poses.

    Raises:
        MisfitError: A number, or one that can be drawn, is out of its range.
    """
    for place, number, allowed in _numbers(given, RANGES[field]):
        if not allowed.low <= number <= allowed.high:
            reason = (
                f"it must lie between {allowed.low:.5g} and {allowed.high:.7g}{allowed.unit}; "
                f"given: {shown(number)}"
            )
            raise MisfitError(".".join(map(str, place)), reason)
    return given


def _numbers(given: Any, allowed: Any, place: tuple = ()) -> Iterator[tuple[tuple, float, Range]]:
    """Yields each number of a field, with its place and its range."""
    match given:
        case None | str():  # no push; what the robot's file says
            return
        case Uniform(uniform=numbers) | Choice(choice=numbers):
            for number in numbers:
                yield place, number, allowed
        case tuple():
            for i, each in enumerate(given):
                inner = allowed if isinstance(allowed, Range) else allowed[i]
                yield from _numbers(each, inner, (*place, i))
        case dict():
            for name, each in given.items():
                yield from _numbers(each, allowed, (*place, name))
        case Value():
            for name, inner in allowed.items():
                yield from _numbers(getattr(given, name), inner, (*place, name))
        case number:
            yield place, number, allowed
