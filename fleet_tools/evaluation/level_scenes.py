"""Scenes of a protocol's level: changed ranges, and a second object on the table.

The second object is drawn by the seed of a scene, as the first one is: a model of the split, its
place, its mass, and so on. What stands too near is drawn again.
"""

import math
import zlib
from typing import Annotated, Any, Literal, Self

import numpy as np
import pydantic

from fleet_tools.config.cameras import SensorName
from fleet_tools.config.distributions import RANGES, Distribution, bounds
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.config.values import (
    STORED_IF_SET,
    MisfitError,
    NonNegative,
    Positive,
    Value,
)
from fleet_tools.errors import ConfigError
from fleet_tools.evaluation.changed_ranges import Change, changed_task
from fleet_tools.evaluation.pushes import RandomHandPush, RandomObjectPush
from fleet_tools.robot.arm import load_robot
from fleet_tools.sim.scene import (
    MOST_FORCES,
    NextObject,
    RandomizationSwitch,
    Scene,
    sample_scene,
)

DRAWS = 200
"""Number of draws after which an object has no place."""


_Some = pydantic.Field(max_length=MOST_FORCES)


class SecondObject(Value):
    """The second object on the table."""

    least_distance_m: NonNegative
    """Least horizontal distance of the model frames of both."""
    y_m: Distribution
    """Where it is along the world's y, instead of the task's distribution, which is narrower."""

    @pydantic.field_validator("y_m")
    @classmethod
    def _within_reach(cls, given: Distribution) -> Distribution:
        allowed = RANGES["object_pose"]["translation_m"]
        low, high = bounds(given)
        if low < allowed.low or high > allowed.high:
            raise MisfitError("", f"expected a number from {allowed.low:g} to {allowed.high:g} m")
        return given

    def add_to(
        self, scene: Scene, task: TaskConfig, split: str, randomization: RandomizationSwitch
    ) -> Scene:
        """Returns a scene with a second object; a pure function of its arguments.

        Args:
            scene: The scene with its first object.
            task: Its task.
            split: Split from which the object is drawn.
            randomization: See `sample_scene`.

        Raises:
            ConfigError: There is no place for the object.
        """
        x, _, z = task.randomization.object_pose.translation_m
        pose = task.randomization.object_pose.model_copy(update={"translation_m": (x, self.y_m, z)})
        changed = task.randomization.model_copy(update={"object_pose": pose})
        wider = task.model_copy(update={"randomization": changed})
        stream = np.random.default_rng([scene.seed, zlib.crc32(b"next_objects")])
        for _ in range(DRAWS):
            seed = int(stream.integers(2**63))
            drawn = sample_scene(
                wider, seed, split=split, tool=scene.tool, randomization=randomization
            )
            second = NextObject(**{name: getattr(drawn, name) for name in NextObject.model_fields})
            if _distance_m(scene, second) >= self.least_distance_m:
                return scene.model_copy(update={"next_objects": (second,)})
        raise ConfigError(
            f"In {DRAWS} draws for the task {task.name!r}, the second object was always closer "
            f"than {self.least_distance_m:g} m to the first. Widen y_m, or reduce the distance."
        )


def _distance_m(one: Scene, other: NextObject) -> float:
    (x_1, y_1, _), (x_2, y_2, _) = (of.object_pose.translation_m for of in (one, other))
    return math.hypot(x_1 - x_2, y_1 - y_2)


class Changes(Value):
    """The changes of a level in the scenes of a task; all else is as at the nominal level."""

    ranges: Annotated[dict[str, Change], STORED_IF_SET] = {}
    """Groups of randomization that are drawn outside the task's ranges."""
    hand_pushes: Annotated[tuple[RandomHandPush, ...], _Some, STORED_IF_SET] = ()
    """Pushes on the hand; all of them occur."""
    object_pushes: Annotated[tuple[RandomObjectPush, ...], _Some, STORED_IF_SET] = ()
    """Pushes on the object, likewise, where it is free."""
    depth_error_scale: Annotated[Positive | None, STORED_IF_SET] = None
    """Factor of the errors of depth cameras; None for 1."""
    second_object: Annotated[SecondObject | None, STORED_IF_SET] = None
    """An object beside the first one, to be used after it; None for none."""

    @pydantic.model_validator(mode="after")
    def _one_object_is_pushed(self) -> Self:
        if self.second_object is not None and self.object_pushes:
            raise MisfitError(
                "second_object",
                "a scene with several objects cannot have a push on the object; remove one of the "
                "two",
            )
        return self

    @property
    def has_any(self) -> bool:
        """Whether anything changes."""
        return any(getattr(self, name) for name in Changes.model_fields)


class LevelChanges(Changes):
    """The changes of a level in all tasks, and in single tasks."""

    by_task: Annotated[dict[str, Changes], STORED_IF_SET] = {}
    """Other changes by name of a task, which replace the common ones."""
    sensors: Annotated[SensorName | None, STORED_IF_SET] = None
    """Depth cameras of all policies; None if whoever evaluates chooses them."""


class SceneRules(LevelChanges):
    """All that scenes of a level depend on beside task, split and seed; see `ProtocolFile`."""

    level: Annotated[str, STORED_IF_SET] = ""
    """Name of the level; "" for the nominal one."""
    randomization: Literal["on", "off"] | dict[str, bool] = "on"
    """See `fleet_tools.sim.scene.sample_scene`."""

    def changes(self, task: str) -> Changes:
        """Returns the changes in a task."""
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
            ConfigError, UnknownNameError: See `changed`, `sample_scene` and `SecondObject.add_to`.
        """
        changes, changed = self.changes(task.name), self.changed(task)
        scene = sample_scene(changed, seed, split=split, randomization=self.randomization)
        on_object = changes.object_pushes if task.object_mount == "free" else ()
        added: dict[str, Any] = {
            name: tuple(push.force(scene.seed, k) for k, push in enumerate(pushes))
            for name, pushes in (("hand_forces", changes.hand_pushes), ("object_forces", on_object))
        }
        if changes.depth_error_scale is not None:
            added["depth_error_scale"] = changes.depth_error_scale
        scene = scene.model_copy(update=added)
        if changes.second_object is None:
            return scene
        return changes.second_object.add_to(scene, changed, split, self.randomization)
