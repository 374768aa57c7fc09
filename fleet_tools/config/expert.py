"""Schema of a task file's expert: keypoint terms and keyframe motions.

A new task composes these building blocks in YAML. Frames: W world, E end effector, T tool model,
O object model.
"""

from typing import Annotated, Literal

import pydantic

from fleet_tools.config.predicates import Predicate
from fleet_tools.config.values import Axis, NonNegative, Number, Positive, Value, Vector3

Speed = Annotated[Positive, pydantic.Field(le=1)]


# --- Keypoint terms: the pose in which the tool acts ------------------------------------------


class PointToPoint(Value):
    """A tool keypoint comes within a tolerance of an object keypoint (the paper, eq. kPAM 2)."""

    type: Literal["point_to_point"]
    tool: str
    """Keypoint of the tool."""
    object: str
    """Keypoint of the object."""
    offset_m: Vector3 = (0.0, 0.0, 0.0)
    """Offset added to the object keypoint, in the object's frame."""
    tolerance_m: Positive = 0.001
    """Largest distance between the two."""


class AxisToAxis(Value):
    """A tool axis makes an angle with an object axis or a world direction (eq. kPAM 3)."""

    type: Literal["axis_to_axis"]
    tool: Axis
    """Two keypoints of the tool."""
    object: Axis | None = None
    """Two keypoints of the object; alternative to `world`."""
    world: Vector3 | None = None
    """Direction in the world; alternative to `object`."""
    angle_deg: Number = 0.0
    """Angle between the two."""
    tolerance_deg: Positive = 1.0
    """Largest deviation from the angle."""

    @pydantic.model_validator(mode="after")
    def _one_target(self):
        if (self.object is None) == (self.world is None):
            raise ValueError("give either `object` (two keypoints) or `world` (a direction)")
        return self


KeypointTerm = Annotated[PointToPoint | AxisToAxis, pydantic.Field(discriminator="type")]


class Actuation(Value):
    """The pose in which the tool acts on the object: the paper's keypoint optimization."""

    constraints: Annotated[tuple[KeypointTerm, ...], pydantic.Field(min_length=1)]
    """Keypoint terms that hold in the pose."""
    keypoint_motion_cost: NonNegative = 1.0
    """Weight of the squared motion of the tool's keypoints, 1/m^2."""
    joint_motion_cost: NonNegative = 0.01
    """Weight of the squared joint motion, 1/rad^2; it selects among the positions of the elbow."""
    speed: Speed = 0.5
    """Speed on the way to this pose, as a fraction of the action bounds."""
    expect: tuple[Predicate, ...] = ()
    """Predicates that hold once the pose is reached; otherwise the attempt has failed."""


# --- Keyframe motions: the plan around that pose -----------------------------------------------


class Translate(Value):
    """Moves the end effector along a line."""

    type: Literal["translate"]
    by_m: Vector3
    """Translation."""
    frame: Literal["world", "object", "end_effector"]
    """Frame in which the translation is given."""


class Advance(Value):
    """Moves the end effector along an axis of the tool, independently of the grasp."""

    type: Literal["advance"]
    axis: Axis
    """Axis from one tool keypoint to another."""
    by_m: Number
    """Distance; negative values withdraw."""


class OverPlace(Value):
    """Moves the end effector horizontally until the carried object is over the marked place.

    The plan takes the two keypoints to be one above the other. Once the motion has begun, the
    expert corrects it by where the object lies on the tool.
    """

    type: Literal["over_place"]
    tool: str
    """Keypoint of the tool."""
    object: str
    """Keypoint of the object that comes over the place."""


class Rotate(Value):
    """Rotates the end effector about an axis through an object keypoint."""

    type: Literal["rotate"]
    angle_deg: Number
    """Angle of the rotation."""
    about: str
    """Keypoint of the object on the axis of rotation."""
    axis: Axis | None = None
    """Axis from one object keypoint to another; the world's z axis if absent."""


class Stay(Value):
    """Keeps the end effector where it is."""

    type: Literal["stay"]
    for_s: Positive
    """Duration; the number of control steps nearest to it, at least one."""


KeyframeMotion = Annotated[
    Translate | Advance | OverPlace | Rotate | Stay, pydantic.Field(discriminator="type")
]


class Keyframe(Value):
    """A pose of the end effector relative to the actuation pose, and the approach to it."""

    motion: KeyframeMotion
    """Motion from the pose to which the keyframe is relative."""
    speed: Speed = 0.5
    """Speed on the way to this keyframe, as a fraction of the action bounds."""
    expect: tuple[Predicate, ...] = ()
    """Predicates that hold once the keyframe is reached; otherwise the attempt has failed."""


UPWARD = Keyframe(
    motion=Translate(type="translate", by_m=(0.0, 0.0, 0.12), frame="world"), speed=0.6
)
"""The retreat of most tools."""


class Expert(Value):
    """The plan: keyframes before the actuation pose, the pose itself, keyframes after it.

    A keyframe before is relative to the actuation pose; one after, to its predecessor. After a
    failed attempt the tool retreats, each motion relative to its present pose, and the expert
    plans again.
    """

    actuation: Actuation
    """The pose in which the tool acts."""
    before: tuple[Keyframe, ...] = ()
    """Keyframes on the way to it."""
    after: tuple[Keyframe, ...] = ()
    """Keyframes that follow it."""
    retreat: tuple[Keyframe, ...] = (UPWARD,)
    """Keyframes after a failed attempt."""

    @property
    def expectations(self) -> list[tuple[Predicate, ...]]:
        """The expected predicates at each keyframe of the plan, in order."""
        return [step.expect for step in (*self.before, self.actuation, *self.after)]
