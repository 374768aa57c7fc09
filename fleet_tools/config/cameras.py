"""What a task file says about its cameras."""

from typing import Annotated, Literal

import pydantic

from fleet_tools.config.values import Number, Positive, Value

CLIPPING_M = (0.01, 10.0)
"""Near and far clipping distances of every camera, m."""


class Camera(Value):
    """An RGB-D camera with square pixels; each scene draws its extrinsics X_FC."""

    frame: Literal["world", "end_effector"]
    """Frame F to which the camera is fixed."""
    field_of_view_deg: Annotated[Number, pydantic.Field(gt=0, lt=180)]
    """Vertical field of view, at any resolution."""
    depth_range_m: tuple[Positive, Positive]
    """Nearest and farthest measured depth; what is nearer reads 0, what is farther infinity."""

    @pydantic.field_validator("depth_range_m")
    @classmethod
    def _ordered(cls, given: tuple[float, float]) -> tuple[float, float]:
        near, far = given
        if not CLIPPING_M[0] <= near < far <= CLIPPING_M[1]:
            raise ValueError(f"the nearer limit comes first, and both lie in {CLIPPING_M}")
        return given


CAMERAS: dict[str, Camera] = {
    "overhead": Camera(frame="world", field_of_view_deg=40.0, depth_range_m=(0.1, 3.0)),
    "wrist": Camera(frame="end_effector", field_of_view_deg=70.0, depth_range_m=(0.05, 3.0)),
}
"""The cameras of a task that names none: one before the robot, one on the hand."""
