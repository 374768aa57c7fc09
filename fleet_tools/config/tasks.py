"""Schema of a task file.

A task is data: families of tools and objects, how scenes vary, what
the expert must achieve at which keypoints, and what counts as success. Its building blocks are in
`fleet_tools.config` (`randomization`, `expert`, `predicates`, `cameras`); environment, simulation
and expert know nothing else about a task, and a new task composes them in YAML.

Keypoints are named in the `keypoints.yaml` of each tool and object.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from fleet_tools.config.cameras import CAMERAS, Camera, Sensors
from fleet_tools.config.control import (
    ActionBounds,
    ControlRate,
    StepBounds,
    steps_of,
)
from fleet_tools.config.expert import Expert, OverPlace
from fleet_tools.config.extends import LayeredFile, load_layers
from fleet_tools.config.file_access import (
    assets_root,
    is_yaml_file,
    models_below,
    task_configs_root,
    yaml_names,
    yaml_path,
)
from fleet_tools.config.geometry import Workspace
from fleet_tools.config.predicates import CausedByPart, KeypointOverPlace, Predicate
from fleet_tools.config.randomization import MOUNT, PLACE, Randomization
from fleet_tools.config.values import (
    STORED_IF_SET,
    Axis,
    MisfitError,
    NonNegative,
    Part,
    Positive,
    Value,
    validate,
)
from fleet_tools.errors import ConfigError, UnknownNameError


class ObservedKeypoints(Value):
    """Keypoints that every tool and object of the task must have; policies observe them."""

    tool: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    """Keypoints of the tool."""
    object: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    """Keypoints of the object."""


class Facing(Value):
    """A side of the tool: its points up to a depth behind a keypoint, along an axis."""

    axis: Axis
    """Two keypoints of the tool: from the back to the front."""
    front: str | None = None
    """Keypoint of the tool behind which the depth is measured; the end of the axis by default."""
    depth_m: Positive
    """Largest distance behind the point, along the axis, that belongs to the side."""

    @property
    def point(self) -> str:
        """The keypoint behind which the depth is measured."""
        return self.axis[1] if self.front is None else self.front


class ObjectPlace(Value):
    """A place on the object: its points within a distance of the line through some keypoints."""

    keypoints: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    """One keypoint of the object, or the corners of a line."""
    within_m: Positive
    """Largest distance from the line that belongs to the place."""


class ToolPart(Value):
    """A part of the tool: its points within a distance of the line through some keypoints."""

    keypoints: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    """One keypoint, or the corners of a line."""
    within_m: Positive
    """Largest distance from the line that belongs to the part."""
    facing: Facing | None = None
    """Side of the tool to which the part is confined."""
    at: Annotated[ObjectPlace | None, STORED_IF_SET] = None
    """Place on the object where the part has to touch it, such as a slot; anywhere by default."""
    bears_on: Annotated[str | None, STORED_IF_SET] = None
    """Fixed link of the object on which the tool has to bear meanwhile, as a lever does on its
    fulcrum, against at least half of its force on moving links; none by default."""
    pushes: Annotated[tuple[Axis, ...] | None, STORED_IF_SET] = None
    """Directions in which the part has to push, within 45 degrees, as a blade between blocks does.
    Each is from one keypoint of a link of the object to another, for that link. Any by default."""


class GentleLimits(Value):
    """Limits within which a success is gentle; scenes and episodes do not depend on them."""

    object_peak_N: Positive
    """Largest force of the hand (arm and tool) on the object, N."""
    table_peak_N: Positive
    """Largest force of the hand on the table, N."""
    table_work_J: Positive
    """Largest work of the hand while it touches the table, J."""


class HeldOut(Value):
    """Models and pairs absent from the split `train`; see `fleet_tools.sim.splits`."""

    tools: tuple[str, ...] = ()
    """Tools that occur in no scene of `train`."""
    objects: tuple[str, ...] = ()
    """Objects that occur in no scene of `train`."""
    pairs: tuple[tuple[str, str], ...] = ()
    """Pairs of a tool and an object; each of the two occurs in other pairs of `train`."""


@dataclass(frozen=True)
class GivenModels:
    """Models that an environment was given by path, or that stored data carry.

    Attributes:
        folders: Their folders by kind ("tool" or "object") and name, NAME@HASH
            (`fleet_tools.sim.catalog.name_of_own`).
        alone: Whether no others are found by path, since paths in stored data mean other folders
            here.
    """

    folders: Mapping[tuple[str, str], str] = field(default_factory=dict)
    alone: bool = False


NO_MODELS = GivenModels()


class TaskConfig(Value):
    """The content of a task file; `task_configs/` holds the package's own.

    A key that is left out has its default. Cameras' and grasps' are the package's, and the arm's
    are in the robot's file (`fleet_tools.robot.arm`), so that a file says what is its
    own: models, success, and what the expert is to do.
    """

    name: str
    """Name of the task; the package's own are named like their files."""
    description: str
    """The task in a sentence."""
    tool_family: str
    """Family of the tools, a folder of `assets/tools/`."""
    object_family: str
    """Family of the objects, a folder of `assets/objects/`."""
    assets: str | None = None
    """Folder of further models, laid out as the package's own, relative to the task file. None has
    the name of one of the package in the same family."""
    held_out: HeldOut = HeldOut()
    """Models and pairs that training does not show."""
    object_mount: Literal["fixed", "free"]
    """Whether the object's first link is fixed to the table."""
    workspace: Workspace = Workspace()
    """Box in which every link of the object must stay, or the episode ends."""
    keypoints: ObservedKeypoints
    """Keypoints that policies observe, in this order."""
    tool_parts: dict[str, ToolPart] = {}
    """Parts of the tool by name, for the predicate `caused_by_part`."""
    control_rate_hz: ControlRate = 6.0
    """Number of actions in a second."""
    time_limit_s: Positive
    """Time limit; an episode ends after the number of control steps nearest to it."""
    action: ActionBounds = ActionBounds()
    """Bounds of actions."""
    cameras: dict[Annotated[str, pydantic.Field(pattern="^[a-z][a-z0-9_]*$")], Camera] = CAMERAS
    """Cameras by name; their extrinsics are drawn, see `Randomization.cameras`."""
    sensors: Sensors = Sensors()
    """Errors of the cameras, for environments that are asked for them."""
    randomization: Randomization = Randomization()
    """Distributions of the varied quantities of scenes."""
    success: Annotated[tuple[Predicate, ...], pydantic.Field(min_length=1)]
    """Success requires all of these predicates."""
    success_duration_s: NonNegative = 0.0
    """How long they must hold: after the number of consecutive control steps nearest to it, at
    least one."""
    gentle: Annotated[GentleLimits | None, STORED_IF_SET] = None
    """Limits of a gentle success; without them, gentleness is not reported."""
    expert: Expert
    """Plan of the expert."""

    _given: GivenModels = pydantic.PrivateAttr(NO_MODELS)

    def digest(self) -> str:
        """Returns a hash of the content without `gentle`, on which episodes do not depend."""
        return Value.digest(self.model_copy(update={"gentle": None}))

    @property
    def step_bounds(self) -> StepBounds:
        """Motion of the end effector in one control step when an action's entry is 1."""
        return self.action.in_step(self.control_rate_hz)

    @property
    def max_episode_steps(self) -> int:
        """Time limit, control steps."""
        return steps_of(self.time_limit_s, self.control_rate_hz)

    @property
    def success_steps(self) -> int:
        """Number of consecutive control steps for which the success predicates must hold."""
        return steps_of(self.success_duration_s, self.control_rate_hz)

    @property
    def given(self) -> GivenModels:
        """Models that scenes may name beside the families'; no part of the file."""
        return self._given

    def with_given(self, given: GivenModels) -> "TaskConfig":
        """Returns the task with other given models."""
        copy = self.model_copy()
        copy._given = given
        return copy

    @pydantic.model_validator(mode="after")
    def _cameras_have_extrinsics(self):
        drawn = self.randomization.cameras
        if self.cameras.keys() != drawn.keys():
            raise MisfitError(
                "randomization.cameras",
                f"cameras and randomization.cameras must name the same cameras; the first names "
                f"{list(self.cameras)}, the second {list(drawn)}",
            )
        for name, pose in drawn.items():
            if pose == MOUNT and self.cameras[name].frame != "end_effector":
                raise MisfitError(
                    f"randomization.cameras.{name}",
                    "this camera is fixed to the world, but the robot's camera of this name is on "
                    "its hand; leave it out here",
                )
        return self

    @pydantic.model_validator(mode="after")
    def _keypoints_exist(self):
        for location, part, name in self._keypoint_uses():
            known = getattr(self.keypoints, part)
            if name not in known:
                error = UnknownNameError(f"{part} keypoint of the task", name, known)
                raise MisfitError(location, str(error))
        return self

    @pydantic.model_validator(mode="after")
    def _parts_exist(self):
        for location, user in self._users():
            if isinstance(user, CausedByPart) and user.part not in self.tool_parts:
                error = UnknownNameError("part of the tool", user.part, self.tool_parts)
                raise MisfitError(f"{location}.part", str(error))
        return self

    @pydantic.model_validator(mode="after")
    def _place_exists(self):
        if self.randomization.place is not None and PLACE in self.keypoints.object:
            raise MisfitError(
                "keypoints.object",
                f"{PLACE!r} is the name of the task's marked place; rename the keypoint",
            )
        for location, user in self._users():
            if self.randomization.place is None and isinstance(user, KeypointOverPlace | OverPlace):
                raise MisfitError(
                    f"{location}.type",
                    f"{user.type} needs a marked place, but the task has none; add one, such as "
                    "`randomization: {place: {distance_m: {uniform: [0, 0.08]}}}`",
                )
        return self

    def _users(self) -> Iterator[tuple[str, Any]]:
        """Yields predicates, keypoint terms and keyframe motions, and where each of them is."""
        expert = self.expert
        for i, term in enumerate(expert.actuation.constraints):
            yield f"expert.actuation.constraints.{i}", term
        predicates = {"success": self.success, "expert.actuation.expect": expert.actuation.expect}
        for name in ("before", "after", "retreat"):
            for i, keyframe in enumerate(getattr(expert, name)):
                yield f"expert.{name}.{i}.motion", keyframe.motion
                predicates[f"expert.{name}.{i}.expect"] = keyframe.expect
        for location, group in predicates.items():
            for i, predicate in enumerate(group):
                yield f"{location}.{i}", predicate
                if isinstance(predicate, CausedByPart):
                    yield f"{location}.{i}.change", predicate.change

    def _keypoint_uses(self) -> Iterator[tuple[str, Part, str]]:
        """Yields where a keypoint is named, of which part it is, and its name."""
        for name, part in self.tool_parts.items():
            for i, keypoint in enumerate(part.keypoints):
                yield f"tool_parts.{name}.keypoints.{i}", "tool", keypoint
            if part.facing is not None:
                for i, keypoint in enumerate(part.facing.axis):
                    yield f"tool_parts.{name}.facing.axis.{i}", "tool", keypoint
                if part.facing.front is not None:
                    yield f"tool_parts.{name}.facing.front", "tool", part.facing.front
            if part.at is not None:
                for i, keypoint in enumerate(part.at.keypoints):
                    yield f"tool_parts.{name}.at.keypoints.{i}", "object", keypoint
            for i, axis in enumerate(part.pushes or ()):
                for keypoint in axis:
                    yield f"tool_parts.{name}.pushes.{i}", "object", keypoint
        keys: dict[str, Part]
        keys = {"tool": "tool", "object": "object", "objects": "object", "start_of": "object"}
        for location, user in self._users():
            for key, part in keys.items():
                given = getattr(user, key, None)
                if isinstance(given, str):
                    yield f"{location}.{key}", part, given
                elif given is not None:
                    for i, name in enumerate(given):
                        yield f"{location}.{key}.{i}", part, name


def task_names() -> list[str]:
    """Returns the names of the tasks that come with the package."""
    return yaml_names(task_configs_root())


def task_path(name_or_path: str) -> Path:
    """Returns the file of a task, given its name in the package or its path.

    Raises:
        UnknownNameError, ConfigError: See `yaml_path`.
    """
    return yaml_path("task", name_or_path, task_configs_root())


def load_task(name_or_path: str) -> TaskConfig:
    """Reads a task by name or by path.

    Raises:
        UnknownNameError: There is no such task.
        ConfigError: The file does not fit, the message lists every place; or see
            `with_own_models`.
    """
    task, file = read_task(name_or_path)
    return task if task.assets is None else with_own_models(task, file.layers[0].path.parent)


def with_own_models(task: TaskConfig, folder: Path) -> TaskConfig:
    """Returns a task with the absolute path of its `assets`.

    Args:
        task: The task, which has `assets`.
        folder: The folder to which they are relative.

    Raises:
        ConfigError: A model there has the name of one of the package, which it would hide.
    """
    assets = (folder / str(task.assets)).resolve()
    for kind, family in (("tool", task.tool_family), ("object", task.object_family)):
        present = models_below(assets_root(), kind, family)
        for name, own in sorted(models_below(assets, kind, family).items()):
            if name in present and own.resolve() != present[name].resolve():
                raise ConfigError(
                    f"The task {task.name!r} has two {kind}s {name!r} of the family {family!r}: "
                    f"{own} and the package's {present[name]}. Scenes name a {kind} by family and "
                    f"name: rename the folder {own}."
                )
    return task.model_copy(update={"assets": str(assets)})


def read_task(name_or_path: str) -> tuple[TaskConfig, LayeredFile]:
    """Reads a task as its file says it, with a relative path of models; and returns the file, too.

    Raises:
        UnknownNameError, ConfigError: See `load_task`.
    """
    path = task_path(name_or_path)
    file = load_layers(path, _find_base)
    return validate(TaskConfig, file.content, str(path), file.cite), file


def _find_base(name_or_path: str, folder: Path) -> Path:
    """Returns the file of a base: a task of the package, or a path relative to a folder."""
    if name_or_path in task_names():
        return task_path(name_or_path)
    path = str(folder / os.path.expanduser(name_or_path))
    if is_yaml_file(path):
        return Path(path)
    remedy = "Or give the path of a YAML file, relative to this one."
    raise UnknownNameError("task", name_or_path, task_names(), remedy)
