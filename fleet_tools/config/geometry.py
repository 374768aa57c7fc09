"""Poses in readable numbers, as task files, scenes and keypoint files give them; the workspace."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

import pydantic

from fleet_tools.config.values import Value, Vector3

if TYPE_CHECKING:
    from pydrake.math import RigidTransform


class Pose(Value):
    """A rigid transform; roll, pitch and yaw rotate about fixed x, y and z axes."""

    translation_m: Vector3 = (0.0, 0.0, 0.0)
    """Translation along x, y and z."""
    rpy_deg: Vector3 = (0.0, 0.0, 0.0)
    """Roll, pitch and yaw."""

    def to_transform(self) -> "RigidTransform":
        """Returns the same pose as a Drake transform."""
        from pydrake.math import RigidTransform, RollPitchYaw  # values load without Drake

        roll, pitch, yaw = (math.radians(angle) for angle in self.rpy_deg)
        return RigidTransform(RollPitchYaw(roll, pitch, yaw), self.translation_m)


class Workspace(Value):
    """A box of the world, m; an object that leaves it is lost.

    The default has the arm's base at its middle. Arm, hand and tool reach 1.4 m at most (0.86 m,
    0.21 m and 0.3 m) about the shoulder, which is 0.33 m above the table. What is farther away can
    no longer be brought back. Nothing is beside or below the table, so that what is 0.1 m below
    its top, z = 0, falls for ever.
    """

    lower_m: Vector3 = (-1.5, -1.5, -0.1)
    """Corner of the box with the least coordinates, in the world."""
    upper_m: Vector3 = (1.5, 1.5, 2.0)
    """The opposite corner."""

    @pydantic.model_validator(mode="after")
    def _has_an_inside(self) -> Self:
        if not all(low < high for low, high in zip(self.lower_m, self.upper_m, strict=True)):
            raise ValueError(
                f"lower_m must be below upper_m in x, y and z; given are {self.lower_m} and "
                f"{self.upper_m}"
            )
        return self

    def contains(self, p_W: Iterable[float]) -> bool:
        """Whether a point of the world is in the box, borders included.

        Args:
            p_W: (3,), the point, m; a coordinate that is not a number is outside.
        """
        return all(
            low <= p <= high for low, p, high in zip(self.lower_m, p_W, self.upper_m, strict=True)
        )
