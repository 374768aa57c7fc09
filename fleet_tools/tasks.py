"""What a task file may say.

A task is data: families of tools and objects, how scenes vary, how the robot is controlled, what
the expert must achieve at which keypoints, and what counts as success. The building blocks below
are all that environment, simulation and expert know; a new task composes them in YAML.

Keypoints are named in the `keypoints.yaml` of each tool and object. Frames: W world, E end
effector, T tool model, O object model.
"""

import os
from pathlib import Path
from typing import Annotated, Literal

import pydantic

from fleet_tools.distributions import Distribution, PositiveDistribution
from fleet_tools.errors import UnknownNameError
from fleet_tools.resources import task_configs_root
from fleet_tools.values import Count, NonNegative, Number, Positive, Value, Vector3, load_yaml

DistributionVector3 = tuple[Distribution, Distribution, Distribution]
DistributionVector7 = Annotated[
    tuple[Distribution, ...], pydantic.Field(min_length=7, max_length=7)
]
Axis = tuple[str, str]  # from one keypoint to another
Speed = Annotated[Positive, pydantic.Field(le=1)]


# --- How scenes vary ------------------------------------------------------------------------


class RandomPose(Value):
    """A pose whose six numbers are drawn: a translation, and roll, pitch, yaw about fixed axes."""

    translation_m: DistributionVector3 = (0.0, 0.0, 0.0)
    rpy_deg: DistributionVector3 = (0.0, 0.0, 0.0)


class Randomization(Value):
    """Everything that is drawn for a scene, apart from the choice of tool and object.

    Each field is a group that can be switched off by its name, and then takes its nominal value.
    """

    initial_joints_rad: DistributionVector7
    """The arm's joint positions at the start."""
    tool_in_hand: RandomPose = RandomPose()
    """Pose of the tool's grasp frame in the end effector; the identity is a perfect grasp."""
    object_pose: RandomPose = RandomPose()
    """X_WO, pose of the object's model frame in the world; the table's top is z = 0."""
    tool_mass_scale: PositiveDistribution = 1.0
    object_mass_scale: PositiveDistribution = 1.0
    tool_friction_scale: PositiveDistribution = 1.0
    object_friction_scale: PositiveDistribution = 1.0
    joint_resistance: dict[str, PositiveDistribution] = {}
    """Coulomb resistance of the object's named joints, N or N m."""


# --- How the robot is moved -----------------------------------------------------------------


class ActionBounds(Value):
    """The motion of the end effector in one control step when an action's entry is 1."""

    translation_m: Positive
    rotation_deg: Positive


class ControllerGains(Value):
    """Operational-space control: natural frequencies of the critically damped errors, rad/s."""

    translation_rad_s: Positive
    rotation_rad_s: Positive
    posture_rad_s: Positive


# --- What the expert must achieve: keypoint terms -------------------------------------------


class PointToPoint(Value):
    """A tool keypoint comes within a tolerance of an object keypoint (the paper, eq. kPAM 2)."""

    type: Literal["point_to_point"]
    tool: str
    object: str
    offset_m: Vector3 = (0.0, 0.0, 0.0)
    """Added to the object keypoint, in the object's frame."""
    tolerance_m: Positive


class AxisToAxis(Value):
    """A tool axis makes an angle with an object axis or a world direction (eq. kPAM 3)."""

    type: Literal["axis_to_axis"]
    tool: Axis
    object: Axis | None = None
    world: Vector3 | None = None
    angle_deg: Number = 0.0
    tolerance_deg: Positive

    @pydantic.model_validator(mode="after")
    def _one_target(self):
        if (self.object is None) == (self.world is None):
            raise ValueError("give either `object` (two keypoints) or `world` (a direction)")
        return self


KeypointTerm = Annotated[PointToPoint | AxisToAxis, pydantic.Field(discriminator="type")]


class Actuation(Value):
    """The pose in which the tool acts on the object: the keypoint optimization of the paper."""

    constraints: Annotated[tuple[KeypointTerm, ...], pydantic.Field(min_length=1)]
    keypoint_motion_cost: NonNegative = 1.0
    """Weight of the squared motion of the tool's keypoints, 1/m^2."""
    joint_motion_cost: NonNegative = 0.01
    """Weight of the squared joint motion, 1/rad^2; it chooses among the elbow's positions."""
    speed: Speed = 0.5
    """Of the way to this pose, as a fraction of the action bounds."""


# --- What the expert does around it: keyframe motions ---------------------------------------


class Translate(Value):
    """Moves the end effector along a line."""

    type: Literal["translate"]
    by_m: Vector3
    frame: Literal["world", "object", "end_effector"]


class Rotate(Value):
    """Turns the end effector about an axis through an object keypoint."""

    type: Literal["rotate"]
    angle_deg: Number
    about: str
    axis: Axis | None = None
    """From one object keypoint to another; the world's z where it is absent."""


class Stay(Value):
    """Keeps the end effector where it is."""

    type: Literal["stay"]
    steps: Count


KeyframeMotion = Annotated[Translate | Rotate | Stay, pydantic.Field(discriminator="type")]


class Keyframe(Value):
    """A pose of the end effector relative to the actuation pose, and how it is approached."""

    motion: KeyframeMotion
    speed: Speed = 0.5
    """Of the way to this keyframe, as a fraction of the action bounds."""


class Expert(Value):
    """The plan: keyframes before the actuation pose, the pose itself, keyframes after it.

    A keyframe before is relative to the actuation pose; one after, to its predecessor.
    """

    actuation: Actuation
    before: tuple[Keyframe, ...] = ()
    after: tuple[Keyframe, ...] = ()


# --- What counts as success -----------------------------------------------------------------


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


class ObservedKeypoints(Value):
    """The keypoints that every tool and object of the task must have; policies observe them."""

    tool: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    object: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]


class Reach(Value):
    """What the dense reward adds to the progress towards success: nearness of two keypoints."""

    tool: str
    object: str
    length_m: Positive
    """The distance at which nearness is one half."""


# --- What is kept from training -------------------------------------------------------------


class HeldOut(Value):
    """Models and pairs that the split `train` does not show; see `fleet_tools.splits`."""

    tools: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    """Tool and object, each of which is seen in other pairs."""


# --- The whole ------------------------------------------------------------------------------


class TaskConfig(Value):
    """Everything that makes a task the task it is; see `task_configs/` for instances."""

    name: str
    description: str
    tool_family: str
    object_family: str
    assets: str | None = None
    """A folder of further models, laid out as the package's own, relative to the task file."""
    held_out: HeldOut = HeldOut()
    object_mount: Literal["fixed", "free"]
    """Whether the object's first link is fixed to the table."""
    keypoints: ObservedKeypoints
    max_episode_steps: Count
    action: ActionBounds
    controller: ControllerGains
    randomization: Randomization
    success: Annotated[tuple[Predicate, ...], pydantic.Field(min_length=1)]
    """All of these hold."""
    success_steps: Count = 1
    """For so many control steps on end."""
    reach: Reach
    expert: Expert

    @pydantic.model_validator(mode="after")
    def _keypoints_exist(self):
        for user in (*self.expert.actuation.constraints, *self.success, self.reach):
            for kind in ("tool", "object", "objects"):
                for name in _names(getattr(user, kind, None)):
                    part = kind.removesuffix("s")
                    known = getattr(self.keypoints, part)
                    if name not in known:
                        raise UnknownNameError(f"{part} among the task's keypoints", name, known)
        return self


def _names(keypoints: str | Axis | None) -> tuple[str, ...]:
    return (keypoints,) if isinstance(keypoints, str) else keypoints or ()


def task_names() -> list[str]:
    """The tasks that come with the package."""
    return sorted(path.stem for path in task_configs_root().glob("*.yaml"))


def task_path(name_or_path: str) -> Path:
    """The file of a task that comes with the package, or of a user's own.

    Raises:
        UnknownNameError: There is neither such a task nor such a file.
    """
    if name_or_path in task_names():
        return task_configs_root() / f"{name_or_path}.yaml"
    if isinstance(name_or_path, str):
        path = Path(os.path.expanduser(name_or_path))
        if path.suffix in (".yaml", ".yml") and path.is_file():
            return path.resolve()
    raise UnknownNameError(
        "task", name_or_path, task_names(), "A task of your own is given by the path of its YAML."
    )


def load_task(name_or_path: str) -> TaskConfig:
    """Reads a task by name or by path.

    Raises:
        UnknownNameError: There is no such task.
        ConfigError: The file says something that it may not say.
    """
    path = task_path(name_or_path)
    task = load_yaml(TaskConfig, path)
    if task.assets is not None:
        task = task.model_copy(update={"assets": str((path.parent / task.assets).resolve())})
    return task
