"""Draws annotations: into Meshcat, so that its time slider moves them, or onto a picture."""

import itertools

import numpy as np
from pydrake.geometry import Meshcat, Rgba, Sphere
from pydrake.math import RigidTransform
from pydrake.perception import BaseField, Fields, PointCloud

from fleet_tools.perception.third_person_view import project
from fleet_tools.utils.libraries import require
from fleet_tools.visualization.annotations import (
    OBJECT_COLOR,
    PLANNED_COLOR,
    TOOL_COLOR,
    TRAVELLED_COLOR,
    Annotations,
)

ROOT = "annotations"
KEYPOINT_RADIUS_M, KNOT_RADIUS_M, POINT_SIZE_M = 0.008, 0.004, 0.003
LINE_WIDTH = 4.0


class MeshcatDrawing:
    """Draws one episode into Meshcat.

    A recording moves and shows things, but makes none: what changes its shape is there from the
    start, in as many pieces as it has moments, each shown when its moment has come.

    Args:
        meshcat: What was drawn of another episode is removed.
    """

    def __init__(self, meshcat: Meshcat) -> None:
        self._meshcat = meshcat
        self._planned: np.ndarray | None = None
        self._acting: np.ndarray | None = None
        self._plan = self._cloud = ""  # the paths of what is shown now
        self._count = itertools.count()
        meshcat.Delete(ROOT)

    def draw(self, annotations: Annotations, time: float) -> None:
        """Draws what is so from this time on, s; times increase."""
        self._draw_keypoints("tool", annotations.tool, TOOL_COLOR, time)
        self._draw_keypoints("object", annotations.object, OBJECT_COLOR, time)
        self._draw_plan(annotations.planned, time)
        self._draw_way(annotations.acting, time)
        if annotations.cloud is not None:
            self._hide(self._cloud, time)
            self._cloud = self.add_cloud(annotations.cloud, annotations.cloud_colors, time)

    def add_cloud(self, points: np.ndarray, colors: np.ndarray, time: float) -> str:
        """Shows points from a time on.

        Args:
            points: (N, 3), in the world, m.
            colors: (N, 3), red, green and blue in [0, 1].
            time: Since the episode's start, s.

        Returns:
            Their path in Meshcat.
        """
        cloud = PointCloud(len(points), Fields(BaseField.kXYZs | BaseField.kRGBs))
        cloud.mutable_xyzs()[:] = np.transpose(points)
        cloud.mutable_rgbs()[:] = np.round(255.0 * np.transpose(colors))
        path = self._new("cloud")
        self._meshcat.SetObject(path, cloud, point_size=POINT_SIZE_M)
        self._show(path, time)
        return path

    def _draw_keypoints(
        self, owner: str, points: dict[str, np.ndarray], color: tuple, time: float
    ) -> None:
        for name, p_W in points.items():
            path = f"{ROOT}/keypoints/{owner}/{name}"
            if not self._meshcat.HasPath(path):
                self._meshcat.SetObject(path, Sphere(KEYPOINT_RADIUS_M), Rgba(*color))
            self._meshcat.SetTransform(path, RigidTransform(p_W), time)

    def _draw_plan(self, planned: np.ndarray | None, time: float) -> None:
        if planned is None or _same(planned, self._planned):
            return
        self._hide(self._plan, time)
        self._planned, self._plan = planned, self._new("planned")
        self._meshcat.SetLine(f"{self._plan}/way", planned.T, LINE_WIDTH, Rgba(*PLANNED_COLOR))
        for k, p_W in enumerate(planned):
            knot = f"{self._plan}/knots/{k}"
            self._meshcat.SetObject(knot, Sphere(KNOT_RADIUS_M), Rgba(*PLANNED_COLOR))
            self._meshcat.SetTransform(knot, RigidTransform(p_W))
        self._show(self._plan, time)

    def _draw_way(self, acting: np.ndarray, time: float) -> None:
        if self._acting is not None:
            path = self._new("travelled")
            ends = np.column_stack([self._acting, acting])
            self._meshcat.SetLine(path, ends, LINE_WIDTH, Rgba(*TRAVELLED_COLOR))
            self._show(path, time)
        self._acting = acting

    def _new(self, kind: str) -> str:
        return f"{ROOT}/{kind}/{next(self._count)}"

    def _show(self, path: str, time: float) -> None:
        if time > 0.0:
            self._meshcat.SetProperty(path, "visible", False, 0.0)
        self._meshcat.SetProperty(path, "visible", True, time)

    def _hide(self, path: str, time: float) -> None:
        if path:
            self._meshcat.SetProperty(path, "visible", False, time)


def draw_on_picture(
    picture: np.ndarray, annotations: Annotations, way: np.ndarray, caption: str
) -> np.ndarray:
    """Draws onto a picture of the third view.

    Args:
        picture: (height, width, 3) uint8, as `env.render()` returns it.
        annotations: What is so now.
        way: (k, 3), where the tool's acting keypoint has been, in the world, m.
        caption: A line of text.

    Returns:
        Another picture.

    Raises:
        MissingLibraryError: Pillow is absent.
    """
    require("PIL", "draw on pictures")
    from PIL import Image, ImageDraw

    image = Image.fromarray(picture)
    draw = ImageDraw.Draw(image, "RGBA")
    if annotations.cloud is not None:
        for (x, y), color in zip(project(annotations.cloud), annotations.cloud_colors, strict=True):
            draw.point((x, y), _rgba(color))
    for points, color in ((annotations.planned, PLANNED_COLOR), (way, TRAVELLED_COLOR)):
        if points is not None and len(points) > 1:
            draw.line(list(map(tuple, project(points))), _rgba(color), width=2)
    for points, color in ((annotations.object, OBJECT_COLOR), (annotations.tool, TOOL_COLOR)):
        for x, y in project(np.array(list(points.values()))):
            draw.circle((x, y), 4, _rgba(color), outline=(255, 255, 255, 255))
    draw.text((12, 10), caption, (40, 44, 52, 255), font_size=16)
    return np.asarray(image)


def _same(planned: np.ndarray, before: np.ndarray | None) -> bool:
    """Whether two plans lead the same way, but for what is lost in rounding."""
    return before is not None and planned.shape == before.shape and np.allclose(planned, before)


def _rgba(color: np.ndarray | tuple) -> tuple[int, ...]:
    return (*np.round(255.0 * np.asarray(color)).astype(int).tolist(), 220)
