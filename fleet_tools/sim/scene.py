"""Scenes: the start of an episode, in plain numbers and names."""

import math
import zlib
from collections.abc import Mapping
from typing import Annotated, Any, Self

import numpy as np
import pydantic

from fleet_tools.config.distributions import RANGES, nominal, require_range, sample
from fleet_tools.config.file_access import texture_file
from fleet_tools.config.geometry import Pose
from fleet_tools.config.randomization import Randomization, RandomPlace, RandomPose
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.config.values import (
    SEEDS_END,
    STORED_IF_SET,
    MisfitError,
    NonNegative,
    Number,
    Seed,
    Value,
    Vector3,
    parse,
)
from fleet_tools.errors import ConfigError, require_name, shown
from fleet_tools.robot.arm import Arm, load_robot
from fleet_tools.sim.catalog import find_model
from fleet_tools.sim.splits import model_pairs

RandomizationSwitch = str | Mapping[str, bool]
"""Which groups are randomized: "on", "off", or a mapping from names of groups to bool."""


def _whole(given: Any) -> Any:
    """Refuses a pose without a part, which would be the identity's."""
    if isinstance(given, Mapping):
        for part in Pose.model_fields:
            if part not in given:
                raise MisfitError(part, "expected both the translation and the rotation of a pose")
    return given


def _known_texture(name: str) -> str:
    texture_file(name)
    return name


GivenPose = Annotated[Pose, pydantic.BeforeValidator(_whole)]


class Place(Value):
    """A marked place on the table, seen from where the object's model frame is at the start."""

    distance_m: Number
    """Horizontal distance."""
    bearing_deg: Number
    """Direction, an angle from the world's x about its z."""

    def from_object(self, X_WO: Pose) -> Vector3:
        """Returns the place in the world, m, given the object's pose at the start."""
        x, y, _ = X_WO.translation_m
        angle, far = math.radians(self.bearing_deg), self.distance_m
        # Rounded, since libraries differ in the last bits of a sine, and episodes must not.
        return x + round(far * math.cos(angle), 6), y + round(far * math.sin(angle), 6), 0.0


class Push(Value):
    """A displacement of the object during the episode, as if somebody moved it."""

    time_s: NonNegative
    """Time since the start of the episode; the object is moved at the start of the control step
    that begins nearest to it."""
    translation_m: Vector3
    """Translation in the world."""


class ExternalForce(Value):
    """When a force acts on something, as if somebody pushed it."""

    start_s: NonNegative
    """Time since the start of the episode; the force begins with the control step that begins
    nearest to it."""
    duration_s: NonNegative
    """It acts for the nearest number of whole control steps, at least one."""


class HandForce(ExternalForce):
    """A force on the robot's hand."""

    force_N: Vector3
    """Force in the world, at the origin of the end effector."""


class ObjectForce(ExternalForce):
    """A force on every link of the object; one that is fixed to the table stays."""

    force_N_per_kg: Vector3
    """Force in the world, at the centre of mass of the link, per kilogram of it."""


MOST_FORCES = 16
"""Largest number of forces on hand or object in a scene."""
MOST_OBJECTS = 4
"""Largest number of objects in a scene."""
_Several = pydantic.Field(max_length=MOST_FORCES)


class NextObject(Value):
    """Another object of a scene; its fields are as in `Scene`."""

    object: str
    object_pose: GivenPose
    object_mass_scale: Number
    object_friction_scale: Number
    joint_resistance: dict[str, Number]
    place: Annotated[Place | None, STORED_IF_SET] = None

    _in_range = pydantic.field_validator(
        "object_pose", "object_mass_scale", "object_friction_scale", "joint_resistance", "place"
    )(require_range)


class Scene(Value):
    """The start of one episode, which it determines together with the task file.

    Scales multiply the values of the model files. Every number is in its range
    (`fleet_tools.config.distributions`).
    """

    task: str
    seed: Seed
    tool: str
    """Name in the task's family, or NAME@HASH of one that was given by path."""
    object: str
    """Likewise."""
    initial_joints_rad: Annotated[tuple[Number, ...], pydantic.Field(min_length=1)]
    """Joint positions of the robot."""
    tool_in_hand: GivenPose
    """X_EG, pose of the tool's grasp frame in the end effector."""
    object_pose: GivenPose
    """X_WO, pose of the object's model frame in the world."""
    tool_mass_scale: Number
    object_mass_scale: Number
    tool_friction_scale: Number
    object_friction_scale: Number
    joint_resistance: dict[str, Number]
    """Coulomb resistance of the object's named joints, N or N m."""
    place: Annotated[Place | None, STORED_IF_SET] = None
    """The marked place, in tasks that draw one."""
    cameras: dict[str, GivenPose]
    """Extrinsics X_FC in the frame F to which the task file fixes each camera."""
    tool_tint: Vector3
    object_tint: Vector3
    table_tint: Vector3
    """Scales of red, green and blue."""
    table_texture: Annotated[str, pydantic.AfterValidator(_known_texture)]
    push: Push | None = None
    """A disturbance; it is never drawn, only added on purpose."""
    hand_forces: Annotated[tuple[HandForce, ...], _Several, STORED_IF_SET] = ()
    """Forces on the hand during the episode; a task draws none, a protocol's level may."""
    object_forces: Annotated[tuple[ObjectForce, ...], _Several, STORED_IF_SET] = ()
    """Forces on the object, likewise."""
    depth_error_scale: Annotated[Number, pydantic.Field(exclude_if=lambda scale: scale == 1)] = 1.0
    """Factor of the errors of depth cameras; a task draws none, a protocol's level may."""
    next_objects: Annotated[
        tuple[NextObject, ...], pydantic.Field(max_length=MOST_OBJECTS - 1), STORED_IF_SET
    ] = ()
    """Further objects on the table, to be used one after another once the first is done; a task
    draws none, a protocol's level may. Tints are the first one's."""

    _in_range = pydantic.field_validator(*RANGES)(require_range)

    @pydantic.model_validator(mode="after")
    def _one_object_is_pushed(self) -> Self:
        if self.next_objects and (self.push is not None or self.object_forces):
            raise MisfitError(
                "next_objects",
                "a scene with several objects cannot have a push on the object; remove one of the "
                "two",
            )
        return self

    @property
    def objects(self) -> "tuple[Scene | NextObject, ...]":
        """The objects in their order, each with the fields of `NextObject`."""
        return (self, *self.next_objects)

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the tool and of the objects, for which a world is built."""
        return (self.tool, *(each.object for each in self.objects))


def marked_place(of: Scene | NextObject) -> Vector3 | None:
    """Returns the marked place of an object in the world, m; None in tasks without one."""
    return None if of.place is None else of.place.from_object(of.object_pose)


def sample_scene(
    task: TaskConfig,
    seed: int,
    *,
    split: str = "train",
    tool: str | None = None,
    object: str | None = None,
    randomization: RandomizationSwitch = "on",
    robot: Arm | None = None,
) -> Scene:
    """Draws a scene; a pure function of its arguments.

    Every group has a generator of its own, so that switching one off leaves the draws of the
    others unchanged; so does fixing the tool or the object, where the split pairs all with all.

    Args:
        task: The task.
        seed: Seed of the scene, non-negative.
        split: Split from which tool and object are drawn; see `fleet_tools.sim.splits`.
        tool: Name in the task's family, or path of a model folder; drawn if None.
        object: Likewise.
        randomization: "on", "off", or a mapping from names of groups (the fields of
            `Randomization`) to whether they are randomized; groups that it omits are.
        robot: The robot, which has what the task leaves to it; None for the default one, or if the
            task is an environment's, which leaves nothing.

    Raises:
        ConfigError, UnknownNameError: An argument is not valid, or names what does not exist.
    """
    seed = check_seed(seed)
    enabled = _enabled_groups(randomization)
    if robot is None and task.randomization.leaves_to_robot:
        robot = load_robot()
    if robot is not None:
        task = robot.fill(task)

    def generator(group: str) -> np.random.Generator:
        return np.random.default_rng([seed, zlib.crc32(group.encode())])

    def choose(kind: str, names: set[str]) -> str:
        return sorted(names)[int(generator(kind).integers(len(names)))]

    def draw(group: str) -> Any:
        stream = generator(group)

        def value(of: Any) -> Any:
            match of:
                case RandomPose():
                    return Pose(translation_m=value(of.translation_m), rpy_deg=value(of.rpy_deg))
                case RandomPlace():
                    return Place(distance_m=value(of.distance_m), bearing_deg=value(of.bearing_deg))
                case dict():
                    return {name: value(inner) for name, inner in of.items()}
                case tuple():
                    return tuple(map(value, of))
                case None:
                    return None
            return sample(of, stream) if enabled[group] else nominal(of)

        return value(getattr(task.randomization, group))

    pairs = model_pairs(task, split)
    if tool is not None:
        find_model("tool", task.tool_family, tool, task.assets, task.given)
    if object is not None:
        find_model("object", task.object_family, object, task.assets, task.given)
    # A given tool or object need not be one of the split.
    with_object = [pair for pair in pairs if pair[1] == object] or pairs
    tool = tool or choose("tool", {pair[0] for pair in with_object})
    with_tool = [pair for pair in pairs if pair[0] == tool] or pairs
    object = object or choose("object", {pair[1] for pair in with_tool})
    drawn = {group: draw(group) for group in Randomization.model_fields}
    facts = {"task": task.name, "seed": seed, "tool": tool, "object": object}
    return parse(Scene, facts | drawn, f"A scene of the task {task.name!r}")


def check_seed(seed: object) -> int:
    """Returns a scene's seed.

    Raises:
        ConfigError: It is not one.
    """
    if (
        not isinstance(seed, int | np.integer)
        or isinstance(seed, bool)
        or not 0 <= seed < SEEDS_END
    ):
        raise ConfigError(f"Expected a seed from 0 to below 2^128; given: {shown(seed)}.")
    return int(seed)


def check_randomization(randomization: RandomizationSwitch) -> None:
    """Checks this switch; raises the same errors as `sample_scene`."""
    _enabled_groups(randomization)


def _enabled_groups(randomization: RandomizationSwitch) -> dict[str, bool]:
    groups = list(Randomization.model_fields)
    if isinstance(randomization, str) and randomization in ("on", "off"):
        return dict.fromkeys(groups, randomization == "on")
    if not isinstance(randomization, Mapping):
        raise ConfigError(
            "Expected randomization to be 'on', 'off' or a mapping such as {'object_pose': False}; "
            f"given: {shown(randomization)}."
        )
    for group, switch in randomization.items():
        require_name("group of randomization", group, groups)
        if not isinstance(switch, bool):
            raise ConfigError(
                f"Expected True or False as randomization of {group!r}; given: {shown(switch)}."
            )
    return {group: randomization.get(group, True) for group in groups}
