"""The cameras of a task and what they look at: images, and the points that all of them see."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from pydrake.geometry import QueryObject
from pydrake.math import RigidTransform

from fleet_tools.config.cameras import Camera
from fleet_tools.config.poses import Pose
from fleet_tools.perception.render_scene import Scenery
from fleet_tools.perception.sensor import Sensor


@dataclass(frozen=True, eq=False)
class View:
    """What one camera sees; None where it was not asked. See `Sensor` for shapes and units."""

    rgb: np.ndarray | None = None
    depth: np.ndarray | None = None
    segmentation: np.ndarray | None = None


class CameraRig:
    """The cameras of a task.

    Args:
        scenery: What they look at.
        cameras: By name.
        size: (width, height) of their pictures, in pixels.
    """

    def __init__(
        self, scenery: Scenery, cameras: Mapping[str, Camera], size: tuple[int, int]
    ) -> None:
        self._scenery = scenery
        self._frames = {name: camera.frame for name, camera in cameras.items()}
        self.sensors = {
            name: Sensor(camera.pinhole(size), camera.depth_range_m)
            for name, camera in cameras.items()
        }

    def poses(
        self, extrinsics: Mapping[str, Pose], X_WE: RigidTransform
    ) -> dict[str, RigidTransform]:
        """Returns X_WC of each camera, given the scene's extrinsics."""
        X_WF = {"world": RigidTransform(), "end_effector": X_WE}
        return {
            name: X_WF[frame] @ extrinsics[name].to_transform()
            for name, frame in self._frames.items()
        }

    def views(
        self, query: QueryObject, X_WC: Mapping[str, RigidTransform], channels: Collection[str]
    ) -> dict[str, View]:
        """Renders the fields of `View` that are named, of all cameras."""

        def view(sensor: Sensor, X_WC: RigidTransform) -> View:
            return View(**{name: getattr(sensor, name)(query, X_WC) for name in channels})

        return {name: view(sensor, X_WC[name]) for name, sensor in self.sensors.items()}

    def points(
        self, query: QueryObject, X_WC: Mapping[str, RigidTransform]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns what they all see of the tool (n, 3) and the object (m, 3) in the world, m."""
        p_W = self._scenery.boxes(query).reshape(-1, 3).T
        seen = [(np.zeros((0, 3)), np.zeros((0, 3)))]
        for name, sensor in self.sensors.items():
            boxes = X_WC[name].inverse().multiply(p_W).T.reshape(-1, 8, 3)
            window = sensor.pinhole.window_around(boxes, near_m=sensor.depth_range_m[0])
            if window is not None:  # the smaller the picture, the cheaper
                seen.append(sensor.cropped(window).points(query, X_WC[name]))
        tool, object = map(np.concatenate, zip(*seen, strict=True))
        return tool, object
