"""Types of options with a notation of their own, such as NAME=X,Y,Z."""

import math
import re
from typing import Annotated

import pydantic

from fleet_tools.config.geometry import Pose
from fleet_tools.config.values import Vector3
from fleet_tools.utils.option_parser import notation

UNITS = {"m": 1.0, "mm": 0.001, "cm": 0.01, "inch": 0.0254}
"""Metres per unit, in the order in which units are tried."""


def check_model_name(name: str) -> str:
    """Returns a name that folders, links, YAML and XML can have.

    Raises:
        ValueError: It contains other characters.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ValueError("a name has letters, digits and underscores, and begins with a letter")
    return name


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not finite")
    return number


def _numbers(text: str, notation: str) -> tuple[float, ...]:
    """Reads numbers with commas between them.

    Args:
        text: The text.
        notation: What is expected, for the error message; it has as many commas.

    Raises:
        ValueError: The text has another form, or a number is not finite.
    """
    try:
        numbers = tuple(_number(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"expected {notation}; given: {text} ({error})") from None
    if len(numbers) != notation.count(",") + 1:
        raise ValueError(f"expected {notation}; given: {text}, which is {len(numbers)} number(s)")
    return numbers


def _vector(text: str, notation: str) -> Vector3:
    x, y, z = _numbers(text, notation)
    return x, y, z


def _keypoint(text: str) -> tuple[str, Vector3]:
    name, equals, position = text.partition("=")
    if not equals:
        raise ValueError(f"expected NAME=X,Y,Z, such as head=0.16,0,0.05; given: {text}")
    return check_model_name(name), _vector(position, "X,Y,Z after NAME=")


def _keypoint_names(text: str) -> tuple[str, ...]:
    return tuple(check_model_name(name) for name in text.split(","))


def _grasp(text: str) -> Pose:
    if text.count(",") == 2:
        return Pose(translation_m=_vector(text, "X,Y,Z or X,Y,Z,ROLL,PITCH,YAW"))
    x, y, z, roll, pitch, yaw = _numbers(text, "X,Y,Z,ROLL,PITCH,YAW")
    return Pose(translation_m=(x, y, z), rpy_deg=(roll, pitch, yaw))


def _box(text: str) -> tuple[Vector3, Vector3]:
    *low, x, y, z = _numbers(text, "X,Y,Z,X,Y,Z")
    low, high = _vector(",".join(map(str, low)), "X,Y,Z"), (x, y, z)
    if not all(a < b for a, b in zip(low, high, strict=True)):
        raise ValueError(f"expected the lowest corner, then the highest one; given: {text}")
    return low, high


def _range(text: str) -> tuple[float, float]:
    low, high = _numbers(text, "LOW,HIGH")
    if not low < high:
        raise ValueError(f"expected LOW,HIGH with LOW below HIGH; given: {text}")
    return low, high


def _scale(text: str) -> float | None:
    if text == "auto":
        return None
    try:
        return UNITS[text] if text in UNITS else _number(text)
    except ValueError:
        raise ValueError(f"expected auto, {', '.join(UNITS)}, or a number; given: {text}") from None


def _colour(text: str) -> Vector3:
    colour = _vector(text, "R,G,B")
    if not all(0 <= component <= 1 for component in colour):
        raise ValueError(f"expected R,G,B from 0 to 1; given: {text}")
    return colour


ModelName = Annotated[str, pydantic.AfterValidator(check_model_name)]
"""Name of a model or a family."""

KeypointArgument = Annotated[tuple[str, Vector3], notation(_keypoint, "NAME=X,Y,Z")]
"""Name and position of a keypoint."""

KeypointNamesArgument = Annotated[tuple[str, ...], notation(_keypoint_names, "NAME,NAME,...")]
"""Names of keypoints."""

GraspArgument = Annotated[Pose | None, notation(_grasp, "X,Y,Z[,ROLL,PITCH,YAW]")]
"""Pose of the hand, in m and degrees."""

ScaleArgument = Annotated[
    float | None,
    pydantic.Field(gt=0),
    notation(_scale, "{auto," + ",".join(UNITS) + ",NUMBER}", lambda scale: str(scale or "auto")),
]
"""Metres per unit of a file; None is to be guessed."""

BoxArgument = Annotated[tuple[Vector3, Vector3] | None, notation(_box, "X,Y,Z,X,Y,Z")]
"""Lowest and highest corner of a box, in the unit of the file."""

ColourArgument = Annotated[Vector3 | None, notation(_colour, "R,G,B")]
"""Red, green and blue, from 0 to 1."""

VectorArgument = Annotated[
    Vector3,
    notation(lambda text: _vector(text, "X,Y,Z"), "X,Y,Z", lambda v: ",".join(f"{x:g}" for x in v)),
]
"""Three numbers."""

RangeArgument = Annotated[tuple[float, float] | None, notation(_range, "LOW,HIGH")]
"""A lower and a higher number."""
