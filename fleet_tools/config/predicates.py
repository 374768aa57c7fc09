"""What a task file may say about success: named predicates over the world's state.

What they mean is in `fleet_tools.envs.success`.
"""

from typing import Annotated, Literal

import pydantic

from fleet_tools.config.values import Axis, Positive, Value


class JointDisplacement(Value):
    """A joint of the object has moved by at least so much since the start, in m or rad."""

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
    """An object keypoint is higher than at the start, by at least so much."""

    type: Literal["keypoint_raised"]
    object: str
    at_least_m: Positive


class KeypointsParted(Value):
    """Two object keypoints are farther apart than at the start, by at least so much."""

    type: Literal["keypoints_parted"]
    objects: Axis
    at_least_m: Positive


class AxisUpright(Value):
    """An object axis points upwards, within an angle."""

    type: Literal["axis_upright"]
    object: Axis
    within_deg: Positive


class Contact(Value):
    """Two parties touch, or do not.

    A party is "robot", "tool", "table", "object" (any of its links) or "object/<link>".
    """

    type: Literal["contact"]
    between: tuple[str, str]
    present: bool = True


class Still(Value):
    """Every link of the object moves slower than this, as seen from the world or the hand."""

    type: Literal["still"]
    seen_from: Literal["world", "end_effector"]
    below_m_s: Positive


Predicate = Annotated[
    JointDisplacement
    | KeypointsNear
    | KeypointRaised
    | KeypointsParted
    | AxisUpright
    | Contact
    | Still,
    pydantic.Field(discriminator="type"),
]
