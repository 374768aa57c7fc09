"""The mathematics of a pinhole camera.

Camera frame C: x to the right of the picture, y down, z into it. Pixel coordinates (u, v) count
from the centre of the top left pixel, u to the right, v down.
"""

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Window:
    """A rectangle of pixels: columns [left, left + width), rows [top, top + height)."""

    left: int
    top: int
    width: int
    height: int


@dataclass(frozen=True)
class Pinhole:
    """Intrinsics of a camera with square pixels.

    Attributes:
        width, height: Of the picture, in pixels.
        focal_px: Focal length.
        center_px: (u, v) of the principal point.
    """

    width: int
    height: int
    focal_px: float
    center_px: tuple[float, float]

    @classmethod
    def from_field_of_view(cls, width: int, height: int, vertical_deg: float) -> "Pinhole":
        """Makes one with its principal point in the middle of the picture."""
        focal_px = 0.5 * height / np.tan(0.5 * np.deg2rad(vertical_deg))
        return cls(width, height, float(focal_px), (0.5 * (width - 1), 0.5 * (height - 1)))

    def matrix(self) -> np.ndarray:
        """Returns K, (3, 3): K p_C is (u, v, 1) times the depth of p_C."""
        f, (u, v) = self.focal_px, self.center_px
        return np.array([[f, 0.0, u], [0.0, f, v], [0.0, 0.0, 1.0]])

    def project(self, p_C: np.ndarray) -> np.ndarray:
        """Returns the pixel coordinates (n, 2) of points (n, 3) in front of the camera."""
        return self.focal_px * p_C[:, :2] / p_C[:, 2:] + self.center_px

    def back_project(self, uv: np.ndarray, depth: np.ndarray) -> np.ndarray:
        """Returns the points (n, 3) in C at pixels (n, 2) with depths (n,), m."""
        slope = (uv - np.asarray(self.center_px)) / self.focal_px
        return np.column_stack([slope * depth[:, None], depth])

    def cropped(self, window: Window) -> "Pinhole":
        """Returns the camera that sees a part of the picture, pixel for pixel."""
        u, v = self.center_px
        center_px = (u - window.left, v - window.top)
        return replace(self, width=window.width, height=window.height, center_px=center_px)

    def window_around(self, p_C: np.ndarray, grid: int = 16) -> Window | None:
        """Returns a window outside which nothing in the convex hull of some points can be seen.

        It holds the principal point, too: Drake's cameras have theirs inside the picture.

        Args:
            p_C: (n, 3), m.
            grid: Its edges lie at multiples of so many pixels, or at the picture's own.

        Returns:
            None if all of it is behind the camera or out of the picture.
        """
        whole = np.array([[0, 0], [self.width, self.height]])
        in_front = p_C[:, 2] > _NEAR_M
        if not in_front.any():
            return None
        if not in_front.all():  # its picture may reach anywhere
            return Window(0, 0, self.width, self.height)
        uv = self.project(p_C)
        if (uv.max(axis=0) < -1).any() or (uv.min(axis=0) > whole[1]).any():
            return None
        uv = np.vstack([uv, self.center_px])
        first, last = uv.min(axis=0) - 1, uv.max(axis=0) + 2  # a pixel more, for rounding
        edges = grid * np.array([np.floor(first / grid), np.ceil(last / grid)])
        (left, top), (right, bottom) = np.clip(edges, *whole).astype(int).tolist()
        return Window(left, top, right - left, bottom - top)


_NEAR_M = 1e-3
