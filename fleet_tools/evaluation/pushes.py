"""Pushes in the middle of an episode, drawn by the seed of its scene."""

import math
import zlib
from collections.abc import Callable
from typing import Annotated

import numpy as np
import pydantic

from fleet_tools.config.distributions import Distribution, bounds, sample
from fleet_tools.config.values import MisfitError, Value
from fleet_tools.sim.scene import HandForce, ObjectForce


def _up_to(most: float) -> Callable[[Distribution], Distribution]:
    def check(given: Distribution) -> Distribution:
        low, high = bounds(given)
        if low < 0 or high > most:
            raise MisfitError("", f"expected a number from 0 to {most:g}; given: {given}")
        return given

    return check


Seconds = Annotated[Distribution, pydantic.AfterValidator(_up_to(1000.0))]
Size = Annotated[Distribution, pydantic.AfterValidator(_up_to(500.0))]


class RandomPush(Value):
    """When somebody pushes, in any horizontal direction; all is drawn for each scene."""

    start_s: Seconds
    """Time since the start of the episode."""
    duration_s: Seconds
    """Duration, see `fleet_tools.sim.scene.ExternalForce`."""

    def draw(
        self, size: Distribution, seed: int, kind: str, number: int
    ) -> tuple[dict[str, float], tuple[float, float, float]]:
        """Returns the times, and the force in the world; each push has its own generator."""
        generator = np.random.default_rng([seed, zlib.crc32(kind.encode()), number])
        start, duration = (float(sample(of, generator)) for of in (self.start_s, self.duration_s))
        angle, force = generator.uniform(-math.pi, math.pi), float(sample(size, generator))
        # Rounded, since libraries differ in the last bits of a sine, and scenes must not.
        x, y = round(force * math.cos(angle), 6), round(force * math.sin(angle), 6)
        return {"start_s": start, "duration_s": duration}, (x, y, 0.0)


class RandomHandPush(RandomPush):
    """A push on the hand."""

    horizontal_N: Size
    """Its size."""

    def force(self, seed: int, number: int) -> HandForce:
        """Draws it for a scene, as one of several by their number."""
        times, force = self.draw(self.horizontal_N, seed, "hand_forces", number)
        return HandForce(**times, force_N=force)


class RandomObjectPush(RandomPush):
    """A push on the object, where it is free; one that is fixed to the table is left alone."""

    horizontal_N_per_kg: Size
    """Its size per kilogram of the object."""

    def force(self, seed: int, number: int) -> ObjectForce:
        """Draws it for a scene, as one of several by their number."""
        times, force = self.draw(self.horizontal_N_per_kg, seed, "object_forces", number)
        return ObjectForce(**times, force_N_per_kg=force)
