"""The cameras of a task in one world: images, and points seen by all of them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydrake.geometry import QueryObject
from pydrake.math import RigidTransform

from fleet_tools.perception.camera import Camera
from fleet_tools.perception.renderer import render_depth, render_labels, render_rgb
from fleet_tools.perception.segmentation import OBJECT, TOOL, Bounds, segment_of_label
from fleet_tools.poses import Pose

if TYPE_CHECKING:
    from fleet_tools.world import World

MOST_POINTS = 1024
"""A camera offers at most so many points of the tool, and as many of the object, for sampling."""


@dataclass(frozen=True, eq=False)
class View:
    """What one camera sees; None where it was not asked.

    Attributes:
        rgb: (height, width, 3) uint8.
        depth: (height, width) float32, m along the camera's z: 0 if nearer than the sensor's
            range, infinite if farther.
        segmentation: (height, width) uint8, see `fleet_tools.perception.segmentation`.
    """

    rgb: np.ndarray | None = None
    depth: np.ndarray | None = None
    segmentation: np.ndarray | None = None


class CameraRig:
    """The cameras of a task.

    Args:
        world: With a renderer.
        cameras: By name.
        size: (width, height) of their pictures, in pixels.
    """

    def __init__(
        self, world: "World", cameras: Mapping[str, Camera], size: tuple[int, int]
    ) -> None:
        self._cameras = cameras
        self._segment_of_label = segment_of_label(world)
        self._bounds = Bounds(world, [world.tool, world.object])
        self.pinholes = {name: camera.pinhole(size) for name, camera in cameras.items()}

    def poses(
        self, extrinsics: Mapping[str, Pose], X_WE: RigidTransform
    ) -> dict[str, RigidTransform]:
        """Returns X_WC of each camera, given the scene's extrinsics."""
        X_WF = {"world": RigidTransform(), "end_effector": X_WE}
        return {
            name: X_WF[camera.frame] @ extrinsics[name].to_transform()
            for name, camera in self._cameras.items()
        }

    def views(
        self, query: QueryObject, X_WC: Mapping[str, RigidTransform], channels: Collection[str]
    ) -> dict[str, View]:
        """Renders the fields of `View` that are named, of all cameras."""
        return {
            name: View(
                **{
                    channel: getattr(self, f"_{channel}")(query, name, pinhole, X_WC[name])
                    for channel in channels
                }
            )
            for name, pinhole in self.pinholes.items()
        }

    def points(
        self, query: QueryObject, X_WC: Mapping[str, RigidTransform]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the points of tool and object that the cameras see, in the world, m.

        They are the back-projected centres of pixels. A camera that sees more than `MOST_POINTS`
        of one of them gives every so manyth.

        Returns:
            (n, 3) on the tool, and (m, 3) on the object.
        """
        corners = self._bounds.corners(query)
        found: dict[int, list[np.ndarray]] = {TOOL: [], OBJECT: []}
        for name, pinhole in self.pinholes.items():
            window = pinhole.window_around(X_WC[name].inverse().multiply(corners.T).T)
            if window is None:
                continue
            # Pixel for pixel the whole picture's, and cheaper the smaller it is.
            part = pinhole.cropped(window)
            depth = self._depth(query, name, part, X_WC[name])
            segmentation = self._segmentation(query, name, part, X_WC[name])
            in_range = np.isfinite(depth) & (depth > 0.0)
            for segment, parts in found.items():
                pixels = np.flatnonzero((segmentation == segment) & in_range)
                if len(pixels) > MOST_POINTS:
                    pixels = pixels[np.linspace(0, len(pixels) - 1, MOST_POINTS).astype(int)]
                v, u = np.divmod(pixels, part.width)
                p_C = part.back_project(np.column_stack([u, v]), depth.ravel()[pixels])
                parts.append(X_WC[name].multiply(p_C.T).T)
        return tuple(np.concatenate([np.zeros((0, 3)), *parts]) for parts in found.values())

    def _rgb(self, query, name, pinhole, X_WC) -> np.ndarray:
        return render_rgb(query, pinhole, X_WC)

    def _depth(self, query, name, pinhole, X_WC) -> np.ndarray:
        return render_depth(query, pinhole, X_WC, self._cameras[name].depth_range_m)

    def _segmentation(self, query, name, pinhole, X_WC) -> np.ndarray:
        return self._segment_of_label[render_labels(query, pinhole, X_WC)]
