"""Rays from a pinhole camera to surfaces, by Embree.

A ray's parameter is its depth in the camera, so that depths are those that a renderer gives. Rays
are moved into the frame of the surface that they may hit.
"""

import importlib.util
from collections.abc import Iterable, Sequence

import numpy as np

from fleet_tools.config.cameras import CLIPPING_M
from fleet_tools.errors import MissingLibraryError
from fleet_tools.perception.hits import Hits
from fleet_tools.perception.pinhole import Pinhole
from fleet_tools.perception.ray_arithmetic import (
    poses_in_camera,
    rays_of_window,
    rays_to_points,
    windows_of_boxes,
)

_NEAR_M = CLIPPING_M[0]
_NEARER_M = np.float32(1e-6)
"""By how much something has to be nearer to hide a point: surfaces that touch hide nothing."""
_FARTHEST_M = 1e30
"""Embree's depth of a ray that hits nothing is larger."""


def require_embree() -> None:
    """Checks that Embree is installed.

    Raises:
        MissingLibraryError: It is not.
    """
    if importlib.util.find_spec("embreex") is None:
        raise MissingLibraryError(
            "Clouds by rays need the package embreex, which has no wheels for this machine. "
            'Render them: cloud_source="vtk".'
        )


class Surface:
    """A rigid surface that rays can hit, from both sides.

    Args:
        triangles: (n, 3, 3) float32, corners in the surface's frame B, m; n > 0.

    Attributes:
        box: (2, 3), lowest and highest corner in B of a box around it, m.

    Raises:
        MissingLibraryError: Embree is missing.
    """

    def __init__(self, triangles: np.ndarray) -> None:
        require_embree()
        from embreex.mesh_construction import TriangleMesh
        from embreex.rtcore_scene import EmbreeScene

        self.box = np.array([triangles.min(axis=(0, 1)), triangles.max(axis=(0, 1))], float)
        self._scene = EmbreeScene()
        TriangleMesh(self._scene, triangles)  # adds itself

    def depths(self, origins: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Returns the parameters (n,) float32 at which rays in B hit it first, or 1e37."""
        return self._scene.run(origins, directions, query="DISTANCE")

    def blocks(
        self, origins: np.ndarray, directions: np.ndarray, lengths: np.ndarray
    ) -> np.ndarray:
        """Returns which rays in B hit it before they end, (n,) bool."""
        hit: np.ndarray = self._scene.run(origins, directions, lengths, query="OCCLUDED")
        return np.greater_equal(hit, 0)


class CameraRays:
    """A camera and the surfaces in front of it, at one moment.

    Args:
        pinhole: Intrinsics of the camera.
        X_WC: (3, 4), its pose.
        surfaces: The surfaces.
        X_WB: (n, 3, 4), their poses.
    """

    def __init__(
        self, pinhole: Pinhole, X_WC: np.ndarray, surfaces: Sequence[Surface], X_WB: np.ndarray
    ) -> None:
        self._width = pinhole.width
        self._intrinsics = np.array([pinhole.focal_px, *pinhole.center_px])
        self._surfaces = surfaces
        self._R_CB, self._p_CB = poses_in_camera(X_WC, X_WB)
        self._windows = windows_of_boxes(
            np.array([each.box for each in surfaces]),
            self._R_CB,
            self._p_CB,
            _NEAR_M,
            self._intrinsics,
            np.array([pinhole.width, pinhole.height]),
        )
        first, last = self._windows[:, None, :2], self._windows[None, :, 2:]
        before = np.asarray(np.less(first, last).all(axis=2))
        self._overlap = np.asarray(before & before.T)

    def hits(self, k: int) -> Hits:
        """Returns the points of surface k that the camera sees if nothing hides them."""
        pixels, *rays = rays_of_window(*self._place(k))
        depths = self._surfaces[k].depths(*rays) if len(pixels) else np.zeros(0, np.float32)
        (hit,) = np.nonzero(depths < _FARTHEST_M)
        return Hits(pixels[hit], depths[hit] + np.float32(_NEAR_M))

    def visible(self, k: int, hits: Hits, others: Iterable[int]) -> Hits:
        """Returns the points of surface k that none of the other surfaces hides."""
        for other in others:
            if not self._overlap[k, other]:
                continue
            within, *rays, lengths = rays_to_points(hits.pixels, hits.depths, *self._place(other))
            if len(within):
                hidden = within[self._surfaces[other].blocks(*rays, lengths - _NEARER_M)]
                if len(hidden):
                    hits = Hits(np.delete(hits.pixels, hidden), np.delete(hits.depths, hidden))
        return hits

    def _place(self, k: int) -> tuple:
        window, R_CB, p_CB = self._windows[k], self._R_CB[k], self._p_CB[k]
        return window, R_CB, p_CB, _NEAR_M, self._intrinsics, self._width
