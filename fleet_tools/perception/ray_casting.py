"""Ray casting from a pinhole camera to surfaces, by Embree.

A ray's parameter is its depth in the camera, so that depths are those that a renderer gives. Rays
are moved into the frame of the surface that they may hit. Their arithmetic is written entry by
entry, without matrix products, whose rounding depends on the processor.
"""

import importlib.util
import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from fleet_tools.config.cameras import CLIPPING_M
from fleet_tools.errors import MissingLibraryError
from fleet_tools.perception.camera_view import Hits, Pinhole
from fleet_tools.utils.compiled import compiled
from fleet_tools.utils.straight_line import straight_line
from fleet_tools.utils.symbols import larger, smaller, where, zeros

_NEAR_M = CLIPPING_M[0]
_NEARER_M = np.float32(1e-6)
"""By how much something has to be nearer to hide a point: surfaces that touch hide nothing."""
_FARTHEST_M = 1e30
"""Embree's depth of a ray that hits nothing is larger."""
_BOXES_AT_ONCE = 5
"""Number of boxes that one call takes; code for more of them takes longer to compile."""


def require_embree() -> None:
    """Checks that Embree is installed.

    Raises:
        MissingLibraryError: It is not.
    """
    if importlib.util.find_spec("embreex") is None:
        raise MissingLibraryError(
            "Point clouds by ray casting need the package embreex, which has no wheels for this "
            'machine. Use rendered ones: cloud_source="vtk".'
        )


class RaySurface:
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
        self, pinhole: Pinhole, X_WC: np.ndarray, surfaces: Sequence[RaySurface], X_WB: np.ndarray
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


# --- Arithmetic -----------------------------------------------------------------------------


@straight_line
def poses_in_camera(X_WC, X_WB):
    """Returns the poses of frames in a camera.

    Args:
        X_WC: (3, 4), pose of the camera.
        X_WB: (n, 3, 4), poses of the frames.

    Returns:
        R_CB (n, 3, 3) and p_CB (n, 3).
    """
    R_CB, p_CB = zeros(len(X_WB), 3, 3), zeros(len(X_WB), 3)
    for n in range(len(X_WB)):
        for i in range(3):
            for k in range(3):
                for j in range(3):
                    R_CB[n, i, j] += X_WC[k, i] * X_WB[n, k, j]
                p_CB[n, i] += X_WC[k, i] * (X_WB[n, k, 3] - X_WC[k, 3])
    return R_CB, p_CB


def windows_of_boxes(boxes, R_CB, p_CB, near, intrinsics, size):
    """Returns the windows of an image that contain the projections of boxes.

    Args:
        boxes: (n, 2, 3), lowest and highest corner of each in its frame B, m.
        R_CB: (n, 3, 3), rotations of these frames in the camera.
        p_CB: (n, 3), their origins there, m.
        near: Depth below which nothing needs to be visible, m.
        intrinsics: (3,), focal length, and u and v of the principal point, in pixels.
        size: (2,), width and height of the image.

    Returns:
        (n, 4) integers: left, top, right, bottom; without pixels if a box is out of the image.
    """
    parts = [
        _projections(boxes[i:end], R_CB[i:end], p_CB[i:end], float(near), intrinsics)
        for i, end in ((i, i + _BOXES_AT_ONCE) for i in range(0, len(boxes), _BOXES_AT_ONCE))
    ]
    low, high = np.hsplit(np.concatenate(parts), 2)
    # A pixel more on each side, for rounding.
    windows = np.hstack([np.floor(low) - 1, np.ceil(high) + 2])
    windows = np.minimum(np.maximum(windows, 0), np.tile(size, 2))
    return np.where(low[:, :1] <= high[:, :1], windows, 0).astype(np.int64)


@straight_line
def _projections(boxes, R_CB, p_CB, near, intrinsics):
    """Returns the bounds of projections of boxes.

    Args:
        boxes: (n, 2, 3), see `windows_of_boxes`.
        R_CB: (n, 3, 3), likewise.
        p_CB: (n, 3), likewise.
        near: Likewise.
        intrinsics: Likewise.

    Returns:
        (n, 4), the lowest u and v, then the highest; infinite if a box is out of view.
    """
    bounds = zeros(len(boxes), 4)
    for n in range(len(boxes)):
        corners = zeros(8, 3)
        for k in range(8):
            for i in range(3):
                corners[k, i] = p_CB[n, i]
                for j in range(3):
                    corners[k, i] += R_CB[n, i, j] * boxes[n, (k >> j) & 1, j]
        seen = [(corners[k, 2] >= near, *corners[k]) for k in range(8)]
        for k, j in itertools.product(range(8), range(3)):
            if not (k >> j) & 1:  # the edge from corner k along axis j
                seen.append(_crossing(corners[k], corners[k | (1 << j)], near))
        bounds[n] = math.inf, math.inf, -math.inf, -math.inf
        for visible, x, y, z in seen:
            for i in range(2):
                position = intrinsics[1 + i] + intrinsics[0] * (x, y)[i] / z
                low, high = bounds[n, i], bounds[n, 2 + i]
                bounds[n, i] = where(visible, smaller(low, position), low)
                bounds[n, 2 + i] = where(visible, larger(high, position), high)
    return bounds


def _crossing(a, b, near):
    """Returns whether an edge passes the depth `near`, and where."""
    from_a, from_b = (a[2] < near) & (b[2] >= near), (b[2] < near) & (a[2] >= near)
    start = [where(from_a, p, q) for p, q in zip(a, b, strict=True)]
    end = [where(from_a, q, p) for p, q in zip(a, b, strict=True)]
    t = (near - start[2]) / (end[2] - start[2])
    x, y = (start[i] + t * (end[i] - start[i]) for i in range(2))
    return from_a | from_b, x, y, near


def rays_of_window(window, R_CB, p_CB, near, intrinsics, width):
    """Returns the rays of all pixels of a window.

    Args:
        window: (4,), left, top, right, bottom.
        R_CB: (3, 3), rotation of the frame B in the camera.
        p_CB: (3,), its origin there, m.
        near: Depth at which rays begin, m.
        intrinsics: (3,), see `windows_of_boxes`.
        width: Width of the image.

    Returns:
        Indices of the pixels (n,), counted along the rows of the image; origins and directions
        (n, 3) float32 of their rays in B, whose parameter is the depth beyond `near`.
    """
    left, top, right, bottom = window
    pixels = (np.arange(top, bottom)[:, None] * width + np.arange(left, right)).ravel()
    _, origins, directions = _rays(pixels, window, R_CB, p_CB, near, intrinsics, width)
    return pixels, origins, directions


def rays_to_points(pixels, depths, window, R_CB, p_CB, near, intrinsics, width):
    """Returns the rays to those points that lie in a window.

    Args:
        pixels: (m,), indices of the points' pixels.
        depths: (m,), their depths, m.
        window: (4,), left, top, right, bottom.
        R_CB: (3, 3), rotation of the frame B in the camera.
        p_CB: (3,), its origin there, m.
        near: Depth at which rays begin, m.
        intrinsics: (3,), see `windows_of_boxes`.
        width: Width of the image.

    Returns:
        Indices of the n points; origins and directions (n, 3) float32 of rays in B, which begin at
        `near`; and their lengths (n,) float32 to the points, m.
    """
    chosen, *rays = _rays(pixels, window, R_CB, p_CB, near, intrinsics, width)
    return chosen, *rays, (depths[chosen].astype(np.float64) - near).astype(np.float32)


def _rays(pixels, window, R_CB, p_CB, near, intrinsics, width):
    """Returns indices of pixels that lie in a window, and their rays; see `rays_of_window`."""
    chosen, shape = np.empty(len(pixels), np.int64), (len(pixels), 3)
    rays = np.empty(shape, np.float32), np.empty(shape, np.float32)
    n = _set_rays(pixels, window, R_CB, p_CB, near, intrinsics, width, chosen, *rays)
    return chosen[:n], *(each[:n] for each in rays)


@compiled
def _set_rays(pixels, window, R_CB, p_CB, near, intrinsics, width, chosen, origins, directions):
    """Sets the results of `_rays`, and returns their number."""
    n = 0
    for k in range(pixels.shape[0]):
        v = pixels[k] // width
        u = pixels[k] - v * width
        if window[0] <= u < window[2] and window[1] <= v < window[3]:
            x, y = (u - intrinsics[1]) / intrinsics[0], (v - intrinsics[2]) / intrinsics[0]
            for j in range(3):
                d = x * R_CB[0, j] + y * R_CB[1, j] + R_CB[2, j]
                o = p_CB[0] * R_CB[0, j] + p_CB[1] * R_CB[1, j] + p_CB[2] * R_CB[2, j]
                directions[n, j], origins[n, j] = d, near * d - o
            chosen[n] = k
            n += 1
    return n
