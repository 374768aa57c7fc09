"""Scenes of a protocol's level: what it changes, and the further objects that it puts on the table.

Further objects are drawn by the seed of a scene, as the first one is: a model of the split, with
the tool at hand, and where it stands, what it weighs, and so on. What stands too near is drawn
again.
"""

import math
import zlib
from typing import Annotated, Literal

import numpy as np
import pydantic

from fleet_tools.config.distributions import RANGES, Distribution, bounds
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.config.values import STORED_IF_SET, Count, MisfitError, NonNegative, Value
from fleet_tools.errors import ConfigError
from fleet_tools.evaluation.disturbances import Disturbances, disturbed_scene
from fleet_tools.sim.scene import (
    MOST_OBJECTS,
    NextObject,
    RandomizationSwitch,
    Scene,
    sample_scene,
)

DRAWS = 200
"""Number of draws after which an object has no place."""


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


class SceneRules(Value):
    """All that scenes of a level depend on beside task, split and seed; see `ProtocolFile`."""

    randomization: Literal["on", "off"] | dict[str, bool] = "on"
    disturbances: Annotated[Disturbances | None, STORED_IF_SET] = None
    next_objects: Annotated[NextObjects | None, STORED_IF_SET] = None

    def draw(self, task: TaskConfig, seed: int, split: str) -> Scene:
        """Draws a scene; a pure function of the rules and the arguments.

        Raises:
            ConfigError, UnknownNameError: See `sample_scene` and `NextObjects.add_to`.
        """
        scene = disturbed_scene(
            task, seed, self.disturbances, split=split, randomization=self.randomization
        )
        if self.next_objects is None:
            return scene
        wider = task if self.disturbances is None else self.disturbances.widen(task)
        return self.next_objects.add_to(scene, wider, split, self.randomization)
