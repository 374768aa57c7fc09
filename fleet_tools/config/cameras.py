"""Camera: what a task file says about one of its cameras."""

from typing import Annotated, Literal

import pydantic

from fleet_tools.config.values import Number, Positive, Value
from fleet_tools.perception.pinhole import Pinhole

CLIPPING_M = (0.01, 10.0)
"""Nothing nearer or farther is drawn."""


class Camera(Value):
    """An RGB-D camera with square pixels; each scene draws its extrinsics X_FC."""

    frame: Literal["world", "end_effector"]
    """F, what it is fixed to."""
    field_of_view_deg: Annotated[Number, pydantic.Field(gt=0, lt=180)]
    """Vertical, whatever the resolution."""
    depth_range_m: tuple[Positive, Positive]
    """What is nearer has the depth 0, what is farther infinity."""

    @pydantic.field_validator("depth_range_m")
    @classmethod
    def _ordered(cls, given: tuple[float, float]) -> tuple[float, float]:
        near, far = given
        if not CLIPPING_M[0] <= near < far <= CLIPPING_M[1]:
            raise ValueError(f"the nearer limit comes first, and both lie in {CLIPPING_M}")
        return given

    def pinhole(self, size: tuple[int, int]) -> Pinhole:
        """Returns its intrinsics at a resolution of (width, height) pixels."""
        return Pinhole.from_field_of_view(*size, self.field_of_view_deg)
