"""The arithmetic of `ray_casting`: pixels of windows, and rays through them.

It is written entry by entry, without matrix products, whose rounding depends on the processor.
"""

import itertools
import math

import numpy as np

from fleet_tools.utils.compiled import compiled
from fleet_tools.utils.straight_line import straight_line
from fleet_tools.utils.symbols import larger, smaller, where, zeros

_BOXES_AT_ONCE = 5
"""Number of boxes that one call takes; code for more of them takes longer to compile."""


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
