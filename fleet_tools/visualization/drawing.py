"""Draws annotations: into Meshcat, whose time slider then moves them, or onto an image."""

import itertools
from collections.abc import Iterable, Mapping

import numpy as np
from pydrake.geometry import Meshcat, Rgba, Sphere
from pydrake.math import RigidTransform
from pydrake.perception import BaseField, Fields, PointCloud

from fleet_tools.perception.camera_view import CameraView
from fleet_tools.utils.libraries import require
from fleet_tools.visualization.annotations import Annotations, Motion
from fleet_tools.visualization.colors import (
    OBJECT_COLOR,
    PLANNED_COLOR,
    TOOL_COLOR,
    TRAVELLED_COLOR,
    Color,
)

ROOT = "annotations"
KEYPOINT_RADIUS_M, KNOT_RADIUS_M, POINT_SIZE_M = 0.008, 0.004, 0.003
LINE_WIDTH = 4.0


class MeshcatDrawing:
    """Draws the annotations of one episode into Meshcat.

    A recording can move and show objects, but not create them. Therefore lines and clouds, which
    change their shape, are drawn as one object per moment, and each is shown from its time on.

    Args:
        meshcat: The server; drawings of earlier episodes are removed from it.
    """

    def __init__(self, meshcat: Meshcat) -> None:
        self._meshcat = meshcat
        self._planned: np.ndarray | None = None
        self._acting: np.ndarray | None = None
        self._plan_path = ""  # of the plan that is visible now
        self._cloud_paths: list[str] = []  # of the tool's and the object's visible points
        self._count = itertools.count()
        meshcat.Delete(ROOT)

    def draw(self, annotations: Annotations, time: float) -> None:
        """Draws annotations.

        Args:
            annotations: The annotations.
            time: Time from which they hold, later than in the last call, s.
        """
        self._draw_keypoints("tool", annotations.tool, TOOL_COLOR, time)
        self._draw_keypoints("object", annotations.object, OBJECT_COLOR, time)
        self._draw_plan(annotations.planned, time)
        self._draw_travelled(annotations.acting, time)
        if annotations.cloud is not None:
            for path in self._cloud_paths:
                self._hide(path, time)
            tool, object = annotations.cloud.tool, annotations.cloud.object
            self._cloud_paths = [
                self._add_points("tool", tool, TOOL_COLOR, time),
                self._add_points("object", object, OBJECT_COLOR, time),
            ]

    def move_cloud(self, motion: Motion, time: float) -> None:
        """Moves the points that were drawn last.

        Args:
            motion: Motion of tool and object since then.
            time: Time since the start of the episode, s.
        """
        for path, X in zip(self._cloud_paths, (motion.tool, motion.object), strict=False):
            self._meshcat.SetTransform(path, X, time)

    def _add_points(self, owner: str, p_W: np.ndarray, color: Color, time: float) -> str:
        """Adds points (N, 3) that are visible from a time on, and returns their path."""
        drawn = PointCloud(len(p_W), Fields(BaseField.kXYZs | BaseField.kRGBs))
        drawn.mutable_xyzs()[:] = np.transpose(p_W)
        drawn.mutable_rgbs()[:] = np.round(255.0 * np.array(color))[:, None]
        path = self._new_path(f"cloud/{owner}")
        self._meshcat.SetObject(path, drawn, point_size=POINT_SIZE_M)
        self._meshcat.SetTransform(path, RigidTransform(), time)
        self._show(path, time)
        return path

    def _draw_keypoints(
        self, owner: str, points: Mapping[str, np.ndarray], color: Color, time: float
    ) -> None:
        for name, p_W in points.items():
            path = f"{ROOT}/keypoints/{owner}/{name}"
            if not self._meshcat.HasPath(path):
                self._meshcat.SetObject(path, Sphere(KEYPOINT_RADIUS_M), Rgba(*color))
            self._meshcat.SetTransform(path, RigidTransform(p_W), time)

    def _draw_plan(self, planned: np.ndarray | None, time: float) -> None:
        if planned is None or _agree(planned, self._planned):
            return
        self._hide(self._plan_path, time)
        self._planned, self._plan_path = planned, self._new_path("planned")
        line, color = f"{self._plan_path}/way", Rgba(*PLANNED_COLOR)
        self._meshcat.SetLine(line, planned.T, LINE_WIDTH, color)
        for k, p_W in enumerate(planned):
            knot = f"{self._plan_path}/knots/{k}"
            self._meshcat.SetObject(knot, Sphere(KNOT_RADIUS_M), color)
            self._meshcat.SetTransform(knot, RigidTransform(p_W))
        self._show(self._plan_path, time)

    def _draw_travelled(self, acting: np.ndarray, time: float) -> None:
        if self._acting is not None:
            path = self._new_path("travelled")
            ends = np.column_stack([self._acting, acting])
            self._meshcat.SetLine(path, ends, LINE_WIDTH, Rgba(*TRAVELLED_COLOR))
            self._show(path, time)
        self._acting = acting

    def _new_path(self, kind: str) -> str:
        return f"{ROOT}/{kind}/{next(self._count)}"

    def _show(self, path: str, time: float) -> None:
        if time > 0.0:
            self._meshcat.SetProperty(path, "visible", False, 0.0)
        self._meshcat.SetProperty(path, "visible", True, time)

    def _hide(self, path: str, time: float) -> None:
        if path:
            self._meshcat.SetProperty(path, "visible", False, time)


def draw_on_image(
    image: np.ndarray,
    view: CameraView,
    annotations: Annotations,
    travelled: np.ndarray,
    caption: str,
) -> np.ndarray:
    """Draws annotations onto an image.

    Args:
        image: (height, width, 3) uint8, as `env.image(view)` returns it.
        view: Where its camera is.
        annotations: Annotations of the same moment.
        travelled: (k, 3), positions of the tool's acting keypoint so far, in the world, m.
        caption: A line of text.

    Returns:
        A new image.

    Raises:
        MissingLibraryError: Pillow is absent.
    """
    require("PIL", "draw on images")
    from PIL import Image, ImageDraw

    canvas = Image.fromarray(image)
    draw = ImageDraw.Draw(canvas, "RGBA")
    if (cloud := annotations.cloud) is not None:
        for points, color in ((cloud.tool, TOOL_COLOR), (cloud.object, OBJECT_COLOR)):
            draw.point(_pixels(view, points), _rgba(color))
    for points, color in ((annotations.planned, PLANNED_COLOR), (travelled, TRAVELLED_COLOR)):
        if points is not None and len(points) > 1:
            draw.line(_pixels(view, points), _rgba(color), width=2)
    for keypoints, color in ((annotations.object, OBJECT_COLOR), (annotations.tool, TOOL_COLOR)):
        for x, y in _pixels(view, np.array(list(keypoints.values()))):
            draw.circle((x, y), 4, _rgba(color), outline=(255, 255, 255, 255))
    draw.text((12, 10), caption, (40, 44, 52, 255), font_size=16)
    return np.asarray(canvas)


def _pixels(view: CameraView, p_W: np.ndarray) -> list[tuple[float, float]]:
    """Returns the pixels of those points (n, 3) that are in front of the camera."""
    uv = view.project(p_W)
    return [(x, y) for x, y in uv[np.isfinite(uv).all(axis=1)].tolist()]


def _agree(planned: np.ndarray, before: np.ndarray | None) -> bool:
    """Whether two plans have the same positions, apart from rounding."""
    return before is not None and planned.shape == before.shape and np.allclose(planned, before)


def _rgba(color: Iterable[float]) -> tuple[int, int, int, int]:
    red, green, blue = np.round(255.0 * np.array(list(color))).astype(int).tolist()
    return red, green, blue, 220
