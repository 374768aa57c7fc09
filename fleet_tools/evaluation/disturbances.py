"""Disturbances of a protocol's level: wider ranges than the task's, and pushes in mid-episode.

The level's file names them, and the seed of a scene draws them, so that a scene follows from its
protocol, task, split and seed alone.
"""

import math
import zlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import numpy as np
import pydantic

from fleet_tools.config.distributions import (
    Distribution,
    Uniform,
    bounds,
    require_range,
    sample,
)
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.config.values import STORED_IF_SET, MisfitError, Value
from fleet_tools.sim.scene import (
    MOST_FORCES,
    HandForce,
    ObjectForce,
    RandomizationSwitch,
    Scene,
    check_seed,
    sample_scene,
)

LARGEST = 500.0
"""Largest horizontal or vertical part of a drawn force, N or N/kg."""


def _between(low: float, high: float) -> Callable[[Distribution], Distribution]:
    def check(given: Distribution) -> Distribution:
        least, most = bounds(given)
        if least < low or most > high:
            raise MisfitError("", f"it must lie between {low:g} and {high:g}; given: {given}")
        return given

    return check


Seconds = Annotated[Distribution, pydantic.AfterValidator(_between(0.0, 1000.0))]
Size = Annotated[Distribution, pydantic.AfterValidator(_between(0.0, LARGEST))]
Height = Annotated[Distribution, pydantic.AfterValidator(_between(-LARGEST, LARGEST))]
Bearing = Annotated[Distribution, pydantic.AfterValidator(_between(-360.0, 360.0))]
AROUND = Uniform(uniform=(-180.0, 180.0))


class RandomPush(Value):
    """When and whither somebody pushes; each of its numbers is drawn for each scene."""

    start_s: Seconds
    """Time since the start of the episode."""
    duration_s: Seconds
    """Duration, see `fleet_tools.sim.scene.ExternalForce`."""
    bearing_deg: Bearing = AROUND
    """Horizontal direction, an angle from the world's x about its z."""

    def draw(
        self, generator: np.random.Generator, horizontal: Distribution, vertical: Distribution
    ) -> tuple[dict[str, float], tuple[float, float, float]]:
        """Returns the times, and the force, in the world."""

        def number(of: Distribution) -> float:
            return float(sample(of, generator))

        times = {"start_s": number(self.start_s), "duration_s": number(self.duration_s)}
        angle, size, up = (
            math.radians(number(self.bearing_deg)),
            number(horizontal),
            number(vertical),
        )
        # Rounded, since libraries differ in the last bits of a sine, and scenes must not.
        x, y = round(size * math.cos(angle), 6), round(size * math.sin(angle), 6)
        return times, (x, y, round(up, 6))


class RandomHandPush(RandomPush):
    """A push on the hand."""

    horizontal_N: Size
    """Size of its horizontal part."""
    vertical_N: Height = 0.0
    """Its vertical part, positive upwards."""


class RandomObjectPush(RandomPush):
    """A push on the object, where it is free; one that is fixed to the table is left alone."""

    horizontal_N_per_kg: Size
    """Size of its horizontal part, per kilogram of the object."""
    vertical_N_per_kg: Height = 0.0
    """Its vertical part, likewise."""


_Some = pydantic.Field(max_length=MOST_FORCES)
_WIDER = (
    *("tool_mass_scale", "object_mass_scale", "tool_friction_scale", "object_friction_scale"),
    "joint_resistance",
)


class Disturbances(Value):
    """What a level changes in the scenes of a task."""

    tool_mass_scale: Annotated[Distribution | None, STORED_IF_SET] = None
    """Factor of the tool's mass and inertia, instead of the task's distribution."""
    object_mass_scale: Annotated[Distribution | None, STORED_IF_SET] = None
    """Factor of the object's mass and inertia, likewise."""
    tool_friction_scale: Annotated[Distribution | None, STORED_IF_SET] = None
    """Factor of the tool's coefficient of friction, likewise."""
    object_friction_scale: Annotated[Distribution | None, STORED_IF_SET] = None
    """Factor of the object's coefficient of friction, likewise."""
    joint_resistance: Annotated[dict[str, Distribution], STORED_IF_SET] = {}
    """By joint, N or N m; a task takes the ones whose joint's resistance it draws."""
    hand_pushes: Annotated[tuple[RandomHandPush, ...], _Some, STORED_IF_SET] = ()
    """Pushes on the hand, all of which come."""
    object_pushes: Annotated[tuple[RandomObjectPush, ...], _Some, STORED_IF_SET] = ()
    """Pushes on the object, likewise."""

    _in_range = pydantic.field_validator(*_WIDER)(require_range)

    def widen(self, task: TaskConfig) -> TaskConfig:
        """Returns the task with the ranges of this level."""
        own = task.randomization
        changes: dict[str, Any] = {
            name: value for name in _WIDER if (value := getattr(self, name)) not in (None, {})
        }
        resistance = changes.pop("joint_resistance", {})
        if known := {name: of for name, of in resistance.items() if name in own.joint_resistance}:
            changes["joint_resistance"] = {**own.joint_resistance, **known}
        return task.model_copy(update={"randomization": own.model_copy(update=changes)})

    def pushes(self, task: TaskConfig, seed: int) -> Mapping[str, tuple]:
        """Draws the forces of a scene, by the fields of `Scene`; each has its own generator."""

        def generator(kind: str, number: int) -> np.random.Generator:
            return np.random.default_rng([seed, zlib.crc32(kind.encode()), number])

        hand = []
        for number, push in enumerate(self.hand_pushes):
            stream = generator("hand_forces", number)
            times, force = push.draw(stream, push.horizontal_N, push.vertical_N)
            hand.append(HandForce(**times, force_N=force))
        object = []
        for number, push in enumerate(self.object_pushes if task.object_mount == "free" else ()):
            stream = generator("object_forces", number)
            times, force = push.draw(stream, push.horizontal_N_per_kg, push.vertical_N_per_kg)
            object.append(ObjectForce(**times, force_N_per_kg=force))
        return {"hand_forces": tuple(hand), "object_forces": tuple(object)}


def disturbed_scene(
    task: TaskConfig,
    seed: int,
    disturbances: Disturbances | None,
    *,
    split: str,
    randomization: RandomizationSwitch,
) -> Scene:
    """Draws a scene of a protocol; a pure function of its arguments.

    Args:
        task: The task.
        seed: Seed of the scene.
        disturbances: Those of the level; None for none, as `sample_scene` draws it.
        split: See `sample_scene`.
        randomization: Likewise; pushes come whatever it is.

    Raises:
        ConfigError, UnknownNameError: See `sample_scene`.
    """
    if disturbances is None:
        return sample_scene(task, seed, split=split, randomization=randomization)
    seed, wider = check_seed(seed), disturbances.widen(task)
    scene = sample_scene(wider, seed, split=split, randomization=randomization)
    return scene.model_copy(update=disturbances.pushes(task, seed))
