"""One RGB-D camera."""

from dataclasses import dataclass, replace

import numpy as np
from pydrake.geometry import QueryObject
from pydrake.math import RigidTransform

from fleet_tools.perception.pinhole import Pinhole, Window
from fleet_tools.perception.point_cloud import even_indices
from fleet_tools.perception.rendering import render_depth, render_labels, render_rgb
from fleet_tools.perception.segmentation import OBJECT, TOOL, segmentation

MOST_POINTS = 1024
"""A camera offers at most so many points of the tool, and as many of the object."""


@dataclass(frozen=True, eq=False)
class Sensor:
    """What takes the pictures.

    Attributes:
        pinhole: Intrinsics.
        depth_range_m: Nearest and farthest distance that it measures.
    """

    pinhole: Pinhole
    depth_range_m: tuple[float, float]

    def rgb(self, query: QueryObject, X_WC: RigidTransform) -> np.ndarray:
        """Returns colours, (height, width, 3) uint8."""
        return render_rgb(query, self.pinhole, X_WC)

    def depth(self, query: QueryObject, X_WC: RigidTransform) -> np.ndarray:
        """Returns distances along the camera's z, (height, width) float32, m.

        What is nearer than the range has 0; what is farther, infinity.
        """
        return render_depth(query, self.pinhole, X_WC, self.depth_range_m)

    def segmentation(self, query: QueryObject, X_WC: RigidTransform) -> np.ndarray:
        """Returns which part each pixel shows, (height, width) uint8."""
        return segmentation(render_labels(query, self.pinhole, X_WC))

    def cropped(self, window: Window) -> "Sensor":
        """Returns the sensor that takes a part of the picture, pixel for pixel."""
        return replace(self, pinhole=self.pinhole.cropped(window))

    def points(self, query: QueryObject, X_WC: RigidTransform) -> tuple[np.ndarray, np.ndarray]:
        """Returns the points of the tool (n, 3) and of the object (m, 3) in the world, m.

        They are the back-projected centres of pixels that are in range; where there are more than
        `MOST_POINTS`, every so manyth.
        """
        depth, segments = self.depth(query, X_WC), self.segmentation(query, X_WC)
        in_range = np.isfinite(depth) & (depth > 0.0)

        def seen(segment: int) -> np.ndarray:
            pixels = np.flatnonzero((segments == segment) & in_range)
            if len(pixels) > MOST_POINTS:
                pixels = pixels[even_indices(pixels, MOST_POINTS)]
            v, u = np.divmod(pixels, self.pinhole.width)
            p_C = self.pinhole.back_project(np.column_stack([u, v]), depth.ravel()[pixels])
            return X_WC.multiply(p_C.T).T

        return seen(TOOL), seen(OBJECT)
