"""Schema of a task file's success predicates, over the state of the world.

`fleet_tools.envs.success` evaluates them.
"""

from typing import Annotated, Literal

import pydantic

from fleet_tools.config.values import Axis, Positive, Value


def _module_and_function(name: str) -> str:
    module, _, function = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        raise ValueError("expected module:function, such as my_package.predicates:upside_down")
    return name


class JointDisplacement(Value):
    """A joint of the object has moved since the start by at least a threshold, m or rad."""

    type: Literal["joint_displacement"]
    joint: str
    """Joint of the object."""
    at_least: Positive
    """Least displacement in the joint's positive direction, m or rad."""


class KeypointsNear(Value):
    """A tool keypoint is within a distance of an object keypoint."""

    type: Literal["keypoints_near"]
    tool: str
    """Keypoint of the tool."""
    object: str
    """Keypoint of the object."""
    within_m: Positive
    """Largest distance."""


class KeypointOverPlace(Value):
    """An object keypoint is above the scene's marked place, within a horizontal distance.

    The task draws the place (`fleet_tools.config.randomization.RandomPlace`).
    """

    type: Literal["keypoint_over_place"]
    object: str
    """Keypoint of the object."""
    within_m: Positive
    """Largest horizontal distance from the place."""


class KeypointRaised(Value):
    """An object keypoint has risen since the start by at least a threshold."""

    type: Literal["keypoint_raised"]
    object: str
    """Keypoint of the object."""
    at_least_m: Positive
    """Least rise, along the world's z axis."""


class KeypointsParted(Value):
    """The distance between two object keypoints has grown by at least a threshold."""

    type: Literal["keypoints_parted"]
    objects: Axis
    """The two keypoints of the object."""
    at_least_m: Positive
    """Least growth of their distance."""


class AxisUpright(Value):
    """An object axis points upwards, within an angle."""

    type: Literal["axis_upright"]
    object: Axis
    """Two keypoints of the object: from the lower to the upper end of the axis."""
    within_deg: Positive
    """Largest angle between the axis and the world's z axis."""


class Contact(Value):
    """Two bodies are in contact, or are not.

    A body is named "robot", "tool", "table", "object" (any link of it) or "object/<link>".
    """

    type: Literal["contact"]
    between: tuple[str, str]
    """Names of the two bodies."""
    present: bool = True
    """Whether they must be in contact, or must not."""


class Still(Value):
    """Every link of the object moves slower than a limit, relative to the world or the hand."""

    type: Literal["still"]
    seen_from: Literal["world", "end_effector"]
    """Frame in which speeds are measured."""
    below_m_s: Positive
    """Limit of the speed."""


class CausedByPart(Value):
    """Another predicate holds of the motion of the object that a part of the tool caused.

    It would hold if the part alone had moved the object, and it holds of the change from where the
    object would be without the part to where it is. So neither what others did nor what others
    undid counts for the part (`fleet_tools.sim.part_motion`).
    """

    type: Literal["caused_by_part"]
    part: str
    """Name in the task's `tool_parts`."""
    change: "Predicate"
    """The change that the part must cause; its threshold may leave a share to everything else."""


class UserFunction(Value):
    """Your own function holds: function(initial, now, **kwargs) returns a bool or a Verdict.

    `initial` and `now` are the states of the world at the start and in the moment that is judged
    (`fleet_tools.sim.world_state.WorldState`); a Verdict (`fleet_tools.envs.success`) also tells
    the progress. The environment imports the function when it is made, so a task file that names
    one runs its code. A dataset's task file does not, unless the module is trusted (see
    `fleet_tools.envs.predicate_functions`).
    """

    type: Literal["function"]
    function: Annotated[str, pydantic.AfterValidator(_module_and_function)]
    """The function as module:function; its module is found on the user's own import path."""
    kwargs: dict[str, pydantic.JsonValue] = {}
    """Further arguments of the function."""


Predicate = Annotated[
    JointDisplacement
    | KeypointsNear
    | KeypointOverPlace
    | KeypointRaised
    | KeypointsParted
    | AxisUpright
    | Contact
    | Still
    | CausedByPart
    | UserFunction,
    pydantic.Field(discriminator="type"),
]

CausedByPart.model_rebuild()  # now that `Predicate` is defined
