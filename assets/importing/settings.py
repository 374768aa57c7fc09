"""Settings of an import; the option groups are also options of the program."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

import pydantic
from tyro.conf import UseAppendAction

from fleet_tools.assets.importing.argument_types import (
    BoxArgument,
    GraspArgument,
    KeypointArgument,
    ModelName,
    RangeArgument,
    ScaleArgument,
    VectorArgument,
)
from fleet_tools.assets.materials import Material
from fleet_tools.config.options import OptionGroup
from fleet_tools.config.values import Count, NonNegative, Positive, Vector3
from fleet_tools.sim.catalog import Kind

UpAxis = Literal["x", "y", "z", "-x", "-y", "-z"]
"""Axis of the file that becomes z."""

Origin = Literal["keep", "base", "centre"]
"""Origin of the model frame: that of the file, the centre of the bounding box's underside, or the
centre of the bounding box."""


class ScaleSettings(OptionGroup):
    """Size of the model."""

    scale: ScaleArgument = None
    """Unit of the file, or metres per unit (default: auto, which guesses it and reports it)."""
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
    """Frame of keypoints and of the grasp's position; mesh: in unit and axes of the file."""

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
    """How it moves: along an axis, or about one."""
    joint_name: ModelName = "joint"
    """Name of the joint, as task files name it."""
    axis: VectorArgument = (0.0, 0.0, 1.0)
    """Direction of the axis in the model frame. Where the first number is negative, write
    --axis=-1,0,0."""
    at: VectorArgument = (0.0, 0.0, 0.0)
    """Point on the axis, m in the model frame."""
    limits: RangeArgument = None
    """Lowest and highest position, in m, or in degrees of a revolute joint; 0 is that of the
    file."""
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
            raise ValueError("give --limits LOW,HIGH, between which the part moves")
        if not any(self.axis):
            raise ValueError("--axis is a direction, and not 0,0,0")
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
    if_open: Literal["hull", "refuse"] = "hull"
    """What to do with a part that is not watertight and cannot be repaired: take its convex hull,
    or refuse the mesh."""


class ScanSettings(OptionGroup):
    """Point clouds of a scan, each file a view; lengths are in the unit of the files."""

    crop: BoxArgument = None
    """Box outside of which points are left out, by its lowest and highest corner."""
    table: bool = False
    """The thing stands on a table, the plane with most points: it is cut off there."""
    poses: Path | None = None
    """YAML file with the key X_WC: the pose of the camera, four rows of four numbers, by the name
    of each file (default: files are in one frame)."""
    align: bool = False
    """Register the views to each other by ICP, from the alignment that they have."""
    voxel: Positive | None = None
    """Size of the smallest details (default: 1/256 of the longest side, or how far points are
    apart)."""
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
