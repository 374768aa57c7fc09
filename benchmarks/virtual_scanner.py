"""A virtual depth camera that scans models from all sides."""

from dataclasses import dataclass

import numpy as np

from fleet_tools.experts.perception.shapes import Shape
from fleet_tools.perception.camera_view import Pinhole
from fleet_tools.perception.ray_casting import CameraRays, RaySurface
from fleet_tools.sim.catalog import Model

WIDTH, HEIGHT = 640, 480
FIELD_OF_VIEW_DEG = 42.0
DISTANCE_M = 0.45
"""From the camera to the middle of the model."""


@dataclass(frozen=True, eq=False)
class VirtualView:
    """What the camera sees from one place.

    Attributes:
        points_C: (n, 3), in the camera's frame, m.
        X_WC: (4, 4), pose of the camera; W is the model's frame.
    """

    points_C: np.ndarray
    X_WC: np.ndarray

    @property
    def points_W(self) -> np.ndarray:
        """The points in W, (n, 3), m."""
        return self.points_C @ self.X_WC[:3, :3].T + self.X_WC[:3, 3]


def visible_triangles(model: Model) -> np.ndarray:
    """Returns the visible surface of a model in its frame, (n, 3, 3), m."""
    shape = Shape(model, fixed=True)
    X = shape.place(np.repeat(np.eye(4)[None], shape.pieces, axis=0), shape.rest)
    placed = zip(shape.surfaces, X, strict=True)
    return np.concatenate([s.triangles @ X_L[:3, :3].T + X_L[:3, 3] for s, X_L in placed])


def scan(
    triangles: np.ndarray, directions: np.ndarray, noise_m: float, generator: np.random.Generator
) -> list[VirtualView]:
    """Scans a surface.

    Args:
        triangles: (n, 3, 3), m.
        directions: (k, 3), unit vectors from its middle to the cameras.
        noise_m: Standard deviation of depths, m; each pixel's own.
        generator: Draws the noise.
    """
    surface = RaySurface(triangles.astype(np.float32))
    pinhole = Pinhole.from_field_of_view(WIDTH, HEIGHT, FIELD_OF_VIEW_DEG)
    middle = (triangles.min(axis=(0, 1)) + triangles.max(axis=(0, 1))) / 2
    views = []
    for direction in directions:
        X_WC = _looking_at(middle + DISTANCE_M * direction, -direction)
        hits = CameraRays(pinhole, X_WC[:3], [surface], np.eye(4)[None, :3]).hits(0)
        v, u = np.divmod(hits.pixels, WIDTH)
        depths = hits.depths + noise_m * generator.standard_normal(len(hits.depths))
        views.append(VirtualView(pinhole.back_project(np.column_stack([u, v]), depths), X_WC))
    return views


def around(count: int) -> np.ndarray:
    """Returns directions (count, 3) that are spread over the sphere, by a Fibonacci spiral."""
    k = np.arange(count) + 0.5
    z, angle = 1 - 2 * k / count, np.pi * (1 + 5**0.5) * k
    radius = np.sqrt(1 - z**2)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle), z])


def _looking_at(position: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Returns the pose (4, 4) of a camera that looks along z."""
    up = np.array([0.0, 0.0, 1.0]) if abs(z[2]) < 0.95 else np.array([0.0, 1.0, 0.0])
    x = np.cross(up, z)
    x /= np.linalg.norm(x)
    X = np.eye(4)
    X[:3, :3], X[:3, 3] = np.column_stack([x, np.cross(z, x), z]), position
    return X
