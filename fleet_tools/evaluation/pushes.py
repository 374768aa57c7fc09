"""Pushes of a protocol's level in mid-episode, which the seed of a scene draws."""

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Annotated

import numpy as np
import pydantic

from fleet_tools.config.distributions import Distribution, Uniform, bounds, sample
from fleet_tools.config.values import MisfitError, Value
from fleet_tools.sim.scene import HandForce, ObjectForce

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


def drawn_pushes(
    hand: Sequence[RandomHandPush], object: Sequence[RandomObjectPush], seed: int
) -> dict[str, tuple]:
    """Draws the forces of a scene, by the fields of `Scene`; each has its own generator.

    Args:
        hand: Pushes on the hand.
        object: Pushes on the object.
        seed: Seed of the scene.
    """

    def generator(kind: str, number: int) -> np.random.Generator:
        return np.random.default_rng([seed, zlib.crc32(kind.encode()), number])

    on_hand, on_object = [], []
    for number, push in enumerate(hand):
        stream = generator("hand_forces", number)
        times, force = push.draw(stream, push.horizontal_N, push.vertical_N)
        on_hand.append(HandForce(**times, force_N=force))
    for number, push in enumerate(object):
        stream = generator("object_forces", number)
        times, force = push.draw(stream, push.horizontal_N_per_kg, push.vertical_N_per_kg)
        on_object.append(ObjectForce(**times, force_N_per_kg=force))
    return {"hand_forces": tuple(on_hand), "object_forces": tuple(on_object)}
