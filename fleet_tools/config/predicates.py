"""What a task file may say about success: named predicates over the state of the world.

`fleet_tools.envs.success` evaluates them.
"""

from typing import Annotated, Literal

import pydantic

from fleet_tools.config.values import Axis, Positive, Value


class JointDisplacement(Value):
    """A joint of the object has moved since the start by at least a threshold, m or rad."""

    type: Literal["joint_displacement"]
    joint: str
    at_least: Positive


class KeypointsNear(Value):
    """A tool keypoint is within a distance of an object keypoint."""

    type: Literal["keypoints_near"]
    tool: str
    object: str
    within_m: Positive


class KeypointRaised(Value):
    """An object keypoint has risen since the start by at least a threshold."""

    type: Literal["keypoint_raised"]
    object: str
    at_least_m: Positive


class KeypointsParted(Value):
    """The distance between two object keypoints has grown by at least a threshold."""

    type: Literal["keypoints_parted"]
    objects: Axis
    at_least_m: Positive


class AxisUpright(Value):
    """An object axis points upwards, within an angle."""

    type: Literal["axis_upright"]
    object: Axis
    within_deg: Positive


class Contact(Value):
    """Two bodies are in contact, or are not.

    A body is named "robot", "tool", "table", "object" (any link of it) or "object/<link>".
    """

    type: Literal["contact"]
    between: tuple[str, str]
    present: bool = True


class Still(Value):
    """Every link of the object moves slower than a limit, relative to the world or the hand."""

    type: Literal["still"]
    seen_from: Literal["world", "end_effector"]
    below_m_s: Positive


class CausedByPart(Value):
    """Another predicate would hold if only a part of the tool had moved the object.

    Motion of the object counts as far as it was caused by contact with the part
    (`fleet_tools.sim.part_motion`).
    """

    type: Literal["caused_by_part"]
    part: str
    """Name in the task's `tool_parts`."""
    change: "Predicate"
    """What the part must have done; its threshold may leave a share to everything else."""


Predicate = Annotated[
    JointDisplacement
    | KeypointsNear
    | KeypointRaised
    | KeypointsParted
    | AxisUpright
    | Contact
    | Still
    | CausedByPart,
    pydantic.Field(discriminator="type"),
]

CausedByPart.model_rebuild()  # now that `Predicate` is defined
