"""Poses in readable numbers, as in task files, scenes and keypoint files; the workspace."""

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

    @classmethod
    def of(cls, X: "RigidTransform") -> Self:
        """Returns the pose of a Drake transform."""
        roll, pitch, yaw = map(math.degrees, X.rotation().ToRollPitchYaw().vector())
        x, y, z = X.translation().tolist()
        return cls(translation_m=(x, y, z), rpy_deg=(roll, pitch, yaw))


TABLE_LOWER_M, TABLE_UPPER_M = (-0.2, -0.8), (1.0, 0.8)
"""Corners of the table's top, z = 0, in x and y, m; the arm's base stands at the origin."""


class Workspace(Value):
    """A box of the world, m; an object is lost once a link's centre of mass leaves it.

    The default is the space over the table, up to 2 m. Contact does not know the table's edge: it
    goes on beyond, where a real object would fall. So no box may reach beyond the table.
    """

    lower_m: Vector3 = (*TABLE_LOWER_M, -0.1)
    """Corner of the box with the least coordinates, in the world."""
    upper_m: Vector3 = (*TABLE_UPPER_M, 2.0)
    """The opposite corner."""

    @pydantic.model_validator(mode="after")
    def _on_the_table(self) -> Self:
        table = zip(TABLE_LOWER_M, self.lower_m, self.upper_m, TABLE_UPPER_M, strict=False)
        if not all(edge <= low and high <= far for edge, low, high, far in table):
            raise ValueError(
                f"the workspace must not reach beyond the table, which ends at {TABLE_LOWER_M} and "
                f"{TABLE_UPPER_M} in x and y; given: {self.lower_m} and {self.upper_m}"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _has_an_inside(self) -> Self:
        if not all(low < high for low, high in zip(self.lower_m, self.upper_m, strict=True)):
            raise ValueError(
                f"lower_m must be below upper_m in x, y and z; given: {self.lower_m} and "
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
