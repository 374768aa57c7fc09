"""Settings of an import; the option groups are also options of the program."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Self

import pydantic
from tyro.conf import UseAppendAction

from fleet_tools.assets.model_description import Material
from fleet_tools.config.geometry import Pose
from fleet_tools.config.options import OptionGroup
from fleet_tools.config.values import Count, NonNegative, Positive, Vector3
from fleet_tools.sim.catalog import Kind, UpAxis
from fleet_tools.utils.option_parser import notation

UNITS = {"m": 1.0, "mm": 0.001, "cm": 0.01, "inch": 0.0254}
"""Metres per unit, in the order in which units are tried."""


def check_model_name(name: str) -> str:
    """Returns a name that folders, links, YAML and XML can have.

    Raises:
        ValueError: It contains other characters.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ValueError("expected letters, digits and underscores, beginning with a letter")
    return name


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not finite")
    return number


def _numbers(text: str, notation: str) -> tuple[float, ...]:
    """Reads numbers with commas between them; a ValueError says which form is expected."""
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
        return Pose(translation_m=_vector(text, "X,Y,Z"))
    x, y, z, roll, pitch, yaw = _numbers(text, "X,Y,Z,ROLL,PITCH,YAW")
    return Pose(translation_m=(x, y, z), rpy_deg=(roll, pitch, yaw))


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

VectorArgument = Annotated[
    Vector3,
    notation(lambda text: _vector(text, "X,Y,Z"), "X,Y,Z", lambda v: ",".join(f"{x:g}" for x in v)),
]
"""Three numbers."""

RangeArgument = Annotated[tuple[float, float] | None, notation(_range, "LOW,HIGH")]
"""A lower and a higher number."""

Origin = Literal["keep", "base", "centre"]
"""Origin of the model frame: the file's, the centre of the bounding box's underside, or the
centre of the bounding box."""


class ScaleSettings(OptionGroup):
    """Size of the model."""

    scale: ScaleArgument = None
    """Unit of the file, or metres per unit, in place of the file's own (default: auto, which takes
    the file's, or guesses it and reports the guess)."""
    length: Positive | None = None
    """Length of the model's longest side, m, in place of the scale."""


class LabelSettings(OptionGroup):
    """Labels of the model."""

    keypoint: UseAppendAction[tuple[KeypointArgument, ...]] = ()
    """Point that tasks refer to, m in the model frame; the option is given once for each."""
    grasp: GraspArgument = None
    """Pose of the hand in the tool's frame, m and degrees (default: the frame itself). Where the
    first number is negative, write --grasp=-0.1,0,0."""
    points_in: Literal["model", "mesh"] = "model"
    """Frame of keypoints and of the grasp's position; mesh: in unit and axes of the file, such as
    inches of a COLLADA file that says so."""

    @pydantic.model_validator(mode="after")
    def _distinct_names(self) -> Self:
        names = [name for name, _ in self.keypoint]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"--keypoint is given twice for {', '.join(twice)}; give it once")
        return self

    @property
    def keypoints(self) -> Mapping[str, Vector3]:
        """Positions by name."""
        return dict(self.keypoint)


class JointSettings(OptionGroup):
    """A part of an object that moves by a joint against a brake."""

    moving: Path | None = None
    """Mesh file of the part that moves, in the unit and axes of the first one."""
    joint: Literal["prismatic", "revolute"] = "prismatic"
    """Kind of motion: along an axis, or about one."""
    joint_name: ModelName = "joint"
    """Name of the joint, as task files name it."""
    axis: VectorArgument = (0.0, 0.0, 1.0)
    """Direction of the axis in the model frame. Where the first number is negative, write
    --axis=-1,0,0."""
    at: VectorArgument = (0.0, 0.0, 0.0)
    """Point on the axis, m in the model frame."""
    limits: RangeArgument = None
    """Lowest and highest position, in m, or in degrees of a revolute joint; 0 is the
    file's."""
    resistance: Positive = 10.0
    """Force in N, or torque in N m, up to which the brake holds; `joint_resistance` in a task file
    draws others."""
    moving_mass: Positive | None = None
    """Mass of the part that moves, kg (default: by the density or the material)."""
    moving_keypoint: UseAppendAction[tuple[KeypointArgument, ...]] = ()
    """Keypoint of the part that moves, as --keypoint."""

    @pydantic.model_validator(mode="after")
    def _complete(self) -> Self:
        if self.moving is None:
            fields = type(self).model_fields.items()
            given = [name for name, field in fields if getattr(self, name) != field.default]
            if given:
                names = " ".join(f"--{name.replace('_', '-')}" for name in given)
                raise ValueError(f"{names} without --moving: give the mesh of the part that moves")
            return self
        if self.limits is None:
            raise ValueError("give --limits LOW,HIGH, the range in which the part moves")
        if not any(self.axis):
            raise ValueError("expected a direction as --axis, not 0,0,0")
        return self


class GeometrySettings(OptionGroup):
    """Repair of the mesh, and collision geometry."""

    pieces: Count = 32
    """Largest number of convex pieces of the collision geometry; there are as few as its fidelity
    allows."""
    fidelity: Positive = 0.0005
    """Distance between collision geometry and mesh near the keypoints, m, that the number of pieces
    aims at."""
    concavity: Positive = 0.05
    """Largest bulge of a convex piece beyond the mesh, relative to the size of the mesh."""
    tolerance: Positive = 0.001
    """Distance from a convex piece, m, that its simplified collision geometry aims at."""


class ScanSettings(OptionGroup):
    """Point clouds of a scan, each file a view, in one frame; lengths are in their unit."""

    voxel: Positive | None = None
    """Size of the smallest details (default: 1/256 of the longest side, or the spacing of points).
    """
    max_unseen: NonNegative = 0.05
    """Largest share of the surface that no point is near to; it is closed smoothly."""


@dataclass(frozen=True)
class ImportSettings:
    """The settings of an import.

    Attributes:
        kind: Whether the model is a tool or an object.
        family: Name of its family.
        name: Name of the model.
        material: Colour and contact properties, and the density where no mass is given.
        mass: Mass, kg; None takes the material's density.
        up: Axis of the file that becomes z.
        origin: Origin of the model frame.
        scale: Size of the model.
        labels: Keypoints and grasp.
        geometry: Repair of the mesh, and collision geometry.
    """

    kind: Kind
    family: str
    name: str
    material: Material
    mass: float | None = None
    up: UpAxis = "z"
    origin: Origin = "keep"
    scale: ScaleSettings = field(default_factory=ScaleSettings)
    labels: LabelSettings = field(default_factory=LabelSettings)
    geometry: GeometrySettings = field(default_factory=GeometrySettings)
