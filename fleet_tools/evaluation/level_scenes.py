"""Scenes of a protocol's level: what it changes, and the further objects that it puts on the table.

Further objects are drawn by the seed of a scene, as the first one is: a model of the split, with
the tool at hand, and where it stands, what it weighs, and so on. What stands too near is drawn
again.
"""

import math
import zlib
from typing import Annotated, Any, Literal, Self

import numpy as np
import pydantic

from fleet_tools.config.distributions import RANGES, Distribution, bounds
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.config.values import (
    STORED_IF_SET,
    Count,
    MisfitError,
    NonNegative,
    Positive,
    Value,
)
from fleet_tools.errors import ConfigError
from fleet_tools.evaluation.changed_ranges import Change, changed_task
from fleet_tools.evaluation.pushes import RandomHandPush, RandomObjectPush, drawn_pushes
from fleet_tools.robot.arm import load_robot
from fleet_tools.sim.scene import (
    MOST_FORCES,
    MOST_OBJECTS,
    NextObject,
    RandomizationSwitch,
    Scene,
    sample_scene,
)

DRAWS = 200
"""Number of draws after which an object has no place."""


_Some = pydantic.Field(max_length=MOST_FORCES)


class NextObjects(Value):
    """What stands on the table beside the first object."""

    number: Annotated[Count, pydantic.Field(lt=MOST_OBJECTS)] = 1
    """How many."""
    least_distance_m: NonNegative
    """Least horizontal distance of the model frames of two objects."""
    y_m: Distribution
    """Where they are along the world's y, instead of the task's distribution, which is narrower."""

    @pydantic.field_validator("y_m")
    @classmethod
    def _within_reach(cls, given: Distribution) -> Distribution:
        allowed = RANGES["object_pose"]["translation_m"]
        low, high = bounds(given)
        if low < allowed.low or high > allowed.high:
            raise MisfitError("", f"it must lie between {allowed.low:g} and {allowed.high:g} m")
        return given

    def add_to(
        self, scene: Scene, task: TaskConfig, split: str, randomization: RandomizationSwitch
    ) -> Scene:
        """Returns a scene with further objects; a pure function of its arguments.

        Args:
            scene: The scene with its first object.
            task: Its task.
            split: Split from which the objects are drawn.
            randomization: See `sample_scene`.

        Raises:
            ConfigError: There is no place for an object.
        """
        wider = self._widened(task)
        for k in range(1, self.number + 1):
            scene = self._with_one_more(scene, wider, k, split, randomization)
        return scene

    def _with_one_more(
        self, scene: Scene, task: TaskConfig, k: int, split: str, randomization: RandomizationSwitch
    ) -> Scene:
        stream = np.random.default_rng([scene.seed, zlib.crc32(b"next_objects"), k])
        for _ in range(DRAWS):
            seed = int(stream.integers(2**63))
            drawn = sample_scene(
                task, seed, split=split, tool=scene.tool, randomization=randomization
            )
            more = NextObject(**{name: getattr(drawn, name) for name in NextObject.model_fields})
            if all(_distance_m(each, more) >= self.least_distance_m for each in scene.objects):
                return scene.model_copy(update={"next_objects": (*scene.next_objects, more)})
        raise ConfigError(
            f"In {DRAWS} draws, no place for object {k + 1} of a scene of the task {task.name!r} "
            f"is {self.least_distance_m:g} m from the others. Widen y_m, or lessen the distance."
        )

    def _widened(self, task: TaskConfig) -> TaskConfig:
        """Returns the task with this range of the object's place."""
        own = task.randomization
        x, _, z = own.object_pose.translation_m
        pose = own.object_pose.model_copy(update={"translation_m": (x, self.y_m, z)})
        changed = own.model_copy(update={"object_pose": pose})
        return task.model_copy(update={"randomization": changed})


def _distance_m(one: Scene | NextObject, other: NextObject) -> float:
    (x_1, y_1, _), (x_2, y_2, _) = (of.object_pose.translation_m for of in (one, other))
    return math.hypot(x_1 - x_2, y_1 - y_2)


class Changes(Value):
    """What a level changes in the scenes of a task; all else is as at the nominal level."""

    ranges: Annotated[dict[str, Change], STORED_IF_SET] = {}
    """Groups of randomization that are drawn outside the task's ranges."""
    hand_pushes: Annotated[tuple[RandomHandPush, ...], _Some, STORED_IF_SET] = ()
    """Pushes on the hand, all of which come."""
    object_pushes: Annotated[tuple[RandomObjectPush, ...], _Some, STORED_IF_SET] = ()
    """Pushes on the object, likewise, where it is free."""
    depth_error_scale: Annotated[Positive | None, STORED_IF_SET] = None
    """Factor of the errors of depth cameras; None for 1."""
    next_objects: Annotated[NextObjects | None, STORED_IF_SET] = None
    """Objects beside the first one; None for none."""

    @pydantic.model_validator(mode="after")
    def _one_object_is_pushed(self) -> Self:
        if self.next_objects is not None and self.object_pushes:
            raise MisfitError("next_objects", "a scene of several objects has no push on one")
        return self

    @property
    def has_any(self) -> bool:
        """Whether anything changes."""
        return any(getattr(self, name) for name in Changes.model_fields)


class SceneRules(Changes):
    """All that scenes of a level depend on beside task, split and seed; see `ProtocolFile`."""

    level: Annotated[str, STORED_IF_SET] = ""
    """Name of the level; "" for the nominal one."""
    randomization: Literal["on", "off"] | dict[str, bool] = "on"
    """See `fleet_tools.sim.scene.sample_scene`."""
    by_task: Annotated[dict[str, Changes], STORED_IF_SET] = {}
    """By name of a task, what changes there instead."""

    def changes(self, task: str) -> Changes:
        """Returns what changes in a task."""
        return self.by_task.get(task, self)

    def changed(self, task: TaskConfig) -> TaskConfig:
        """Returns a task with the ranges of this level.

        Raises:
            ConfigError, UnknownNameError: See `changed_task`.
        """
        changes = self.changes(task.name).ranges
        if changes and task.randomization.leaves_to_robot:
            task = load_robot().fill(task)
        return changed_task(task, changes, self.level)

    def draw(self, task: TaskConfig, seed: int, split: str) -> Scene:
        """Draws a scene; a pure function of the rules and the arguments.

        Raises:
            ConfigError, UnknownNameError: See `changed`, `sample_scene` and `NextObjects.add_to`.
        """
        changes, changed = self.changes(task.name), self.changed(task)
        scene = sample_scene(changed, seed, split=split, randomization=self.randomization)
        on_object = changes.object_pushes if task.object_mount == "free" else ()
        added: dict[str, Any] = drawn_pushes(changes.hand_pushes, on_object, scene.seed)
        if changes.depth_error_scale is not None:
            added["depth_error_scale"] = changes.depth_error_scale
        scene = scene.model_copy(update=added)
        if changes.next_objects is None:
            return scene
        return changes.next_objects.add_to(scene, changed, split, self.randomization)
