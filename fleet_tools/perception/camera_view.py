"""A camera at its present pose: pinhole model, and meaning of its pixels.

Camera frame C: x to the right in the image, y down, z into it. Pixel coordinates (u, v) count from
the centre of the top left pixel, u to the right, v down.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from fleet_tools.config.cameras import CLIPPING_M, Camera

if TYPE_CHECKING:
    from pydrake.math import RigidTransform

Channel = Literal["rgb", "depth", "segmentation"]
CHANNELS: tuple[Channel, ...] = get_args(Channel)
"""Kinds of images of a camera."""

THIRD = "third"
"""Name of the third-person view among the cameras of a task."""
PICTURE_SIZE = (640, 480)
"""Width and height of pictures for people, in pixels."""

BACKGROUND, ROBOT, TOOL, OBJECT = range(4)
SEGMENTS = ("background", "robot", "tool", "object")
"""Names of the values of a segmentation; the table is background."""
OTHER_OBJECT, MARK = len(SEGMENTS), len(SEGMENTS) + 1
"""An object that is not in use, and the mark of a place: a segmentation shows background."""


@dataclass(frozen=True)
class Window:
    """A rectangle of pixels: columns [left, left + width), rows [top, top + height)."""

    left: int
    top: int
    width: int
    height: int

    def in_image(self, pixels: np.ndarray, image_width: int) -> np.ndarray:
        """Returns the indices of its pixels in the whole image; both count along the rows."""
        v, u = np.divmod(pixels, self.width)
        return (v + self.top) * image_width + u + self.left


@dataclass(frozen=True)
class Pinhole:
    """Intrinsics of a camera with square pixels.

    Attributes:
        width, height: Size of the image, in pixels.
        focal_px: Focal length, in pixels.
        center_px: (u, v) of the principal point.
    """

    width: int
    height: int
    focal_px: float
    center_px: tuple[float, float]

    @classmethod
    def from_field_of_view(cls, width: int, height: int, vertical_deg: float) -> "Pinhole":
        """Makes a camera with its principal point in the middle of the image."""
        focal_px = 0.5 * height / np.tan(0.5 * np.deg2rad(vertical_deg))
        return cls(width, height, float(focal_px), (0.5 * (width - 1), 0.5 * (height - 1)))

    @classmethod
    def of(cls, camera: Camera, size: tuple[int, int]) -> "Pinhole":
        """Makes the intrinsics of a task's camera at a resolution of (width, height) pixels."""
        return cls.from_field_of_view(*size, camera.field_of_view_deg)

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
        """Returns the camera of a part of the image, pixel for pixel."""
        u, v = self.center_px
        center_px = (u - window.left, v - window.top)
        return replace(self, width=window.width, height=window.height, center_px=center_px)

    def window_around(self, boxes: np.ndarray, near_m: float) -> Window | None:
        """Returns a window that contains the projection of boxes.

        It contains the principal point: Drake's cameras have theirs inside the image. Its edges
        lie at multiples of 16 pixels, or at the image's own.

        Args:
            boxes: (n, 8, 3), corners in C, ordered as `BOX_CORNERS`, m.
            near_m: Distance below which nothing needs to be visible, m.

        Returns:
            None if all boxes are too near, behind the camera or outside the image.
        """
        p_C = _beyond(boxes, near_m)
        if not len(p_C):
            return None
        uv, size = self.project(p_C), np.array([self.width, self.height])
        if (uv.max(axis=0) < -1).any() or (uv.min(axis=0) > size).any():
            return None
        uv = np.vstack([uv, self.center_px])
        first, last = uv.min(axis=0) - 1, uv.max(axis=0) + 2  # a pixel more, for rounding
        edges = 16 * np.array([np.floor(first / 16), np.ceil(last / 16)])
        (left, top), (right, bottom) = np.clip(edges, 0, size).astype(int).tolist()
        return Window(left, top, right - left, bottom - top)


BOX_CORNERS = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
"""The corners of a box of half width 1, (8, 3)."""

_EDGES = np.array(
    [(i, j) for i in range(8) for j in range(i) if np.sum(BOX_CORNERS[i] != BOX_CORNERS[j]) == 1]
)


def _beyond(boxes: np.ndarray, near_m: float) -> np.ndarray:
    """Returns points (m, 3) whose convex hull contains the parts of boxes beyond a plane z."""
    a, b = boxes[:, _EDGES[:, 0]].reshape(-1, 3), boxes[:, _EDGES[:, 1]].reshape(-1, 3)
    cut = (a[:, 2] < near_m) != (b[:, 2] < near_m)
    a, b = a[cut], b[cut]
    t = (near_m - a[:, 2:]) / (b[:, 2:] - a[:, 2:])
    corners = boxes.reshape(-1, 3)
    return np.concatenate([corners[corners[:, 2] >= near_m], a + t * (b - a)])


@dataclass(frozen=True, eq=False)
class CameraView:
    """A camera where it is now.

    Attributes:
        name: Its name.
        pinhole: Its intrinsics.
        X_WC: Its pose.
        depth_range_m: Nearest and farthest depth of its images.
        frame: What it is fixed to: "world" or "end_effector".
    """

    name: str
    pinhole: Pinhole
    X_WC: "RigidTransform"
    depth_range_m: tuple[float, float]
    frame: str = "world"

    def project(self, p_W: np.ndarray) -> np.ndarray:
        """Projects points (..., 3) in the world, m: pixels right and down, (..., 2).

        Points that are not in front of the camera are NaN.
        """
        p_C = self.X_WC.inverse().multiply(np.reshape(p_W, (-1, 3)).T).T
        p_C[p_C[:, 2] < CLIPPING_M[0]] = np.nan
        return self.pinhole.project(p_C).reshape(*np.shape(p_W)[:-1], 2)


@dataclass(frozen=True, eq=False)
class Hits:
    """Points of a surface in an image.

    Attributes:
        pixels: (n,), indices of their pixels, counted along the rows of the image.
        depths: (n,) float32, m.
    """

    pixels: np.ndarray
    depths: np.ndarray


def segmentation(labels: np.ndarray) -> np.ndarray:
    """Returns segments (height, width) uint8, given the labels of a renderer, int16.

    What the renderer labels as empty is background.
    """
    return np.where(labels < len(SEGMENTS), labels, BACKGROUND).astype(np.uint8)
