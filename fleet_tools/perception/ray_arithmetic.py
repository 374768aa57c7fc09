"""The arithmetic of `ray_casting`: pixels of windows, and rays through them."""

import numpy as np

from fleet_tools.utils.compiled import compiled


@compiled
def poses_in_camera(X_WC, X_WB):
    """Returns the poses of frames in a camera.

    Args:
        X_WC: (3, 4), pose of the camera.
        X_WB: (n, 3, 4), poses of the frames.

    Returns:
        R_CB (n, 3, 3) and p_CB (n, 3).
    """
    R_CB, p_CB = np.zeros((len(X_WB), 3, 3)), np.zeros((len(X_WB), 3))
    for n in range(len(X_WB)):
        for i in range(3):
            for k in range(3):
                for j in range(3):
                    R_CB[n, i, j] += X_WC[k, i] * X_WB[n, k, j]
                p_CB[n, i] += X_WC[k, i] * (X_WB[n, k, 3] - X_WC[k, 3])
    return R_CB, p_CB


@compiled
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
    f, center_u, center_v = intrinsics
    windows = np.zeros((len(boxes), 4), np.int64)
    corners = np.zeros((8, 3))
    for n in range(len(boxes)):
        for k in range(8):
            for i in range(3):
                corners[k, i] = p_CB[n, i]
                for j in range(3):
                    corners[k, i] += R_CB[n, i, j] * boxes[n, (k >> j) & 1, j]
        low_u = low_v = np.inf
        high_u = high_v = -np.inf
        for k in range(8):
            for j in range(4):  # the corner, and the edges to its neighbours
                x, y, z = corners[k, 0], corners[k, 1], corners[k, 2]
                if j < 3:
                    other = corners[k ^ (1 << j)]
                    if z >= near or other[2] < near:
                        continue
                    t = (near - z) / (other[2] - z)
                    x, y, z = x + t * (other[0] - x), y + t * (other[1] - y), near
                if z >= near:
                    u, v = center_u + f * x / z, center_v + f * y / z
                    low_u, high_u = min(low_u, u), max(high_u, u)
                    low_v, high_v = min(low_v, v), max(high_v, v)
        if low_u <= high_u:  # a pixel more on each side, for rounding
            windows[n, 0] = min(max(np.floor(low_u) - 1, 0), size[0])
            windows[n, 1] = min(max(np.floor(low_v) - 1, 0), size[1])
            windows[n, 2] = min(max(np.ceil(high_u) + 2, 0), size[0])
            windows[n, 3] = min(max(np.ceil(high_v) + 2, 0), size[1])
    return windows


@compiled
def _set_ray(origin, direction, x, y, R_CB, p_CB, near):
    """Writes the ray in B that passes (x, y) at depth 1 of the camera and begins at `near`."""
    for j in range(3):
        d = x * R_CB[0, j] + y * R_CB[1, j] + R_CB[2, j]
        o = p_CB[0] * R_CB[0, j] + p_CB[1] * R_CB[1, j] + p_CB[2] * R_CB[2, j]
        direction[j], origin[j] = d, near * d - o


@compiled
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
    f, center_u, center_v = intrinsics
    left, top, right, bottom = window
    n = max(0, right - left) * max(0, bottom - top)
    pixels = np.empty(n, np.int64)
    origins, directions = np.empty((n, 3), np.float32), np.empty((n, 3), np.float32)
    k = 0
    for v in range(top, bottom):
        y = (v - center_v) / f
        for u in range(left, right):
            x = (u - center_u) / f
            pixels[k] = v * width + u
            _set_ray(origins[k], directions[k], x, y, R_CB, p_CB, near)
            k += 1
    return pixels, origins, directions


@compiled
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
    f, center_u, center_v = intrinsics
    left, top, right, bottom = window
    chosen = np.empty(len(pixels), np.int64)
    n = 0
    for k in range(len(pixels)):
        u, v = pixels[k] % width, pixels[k] // width
        if left <= u < right and top <= v < bottom:
            chosen[n] = k
            n += 1
    origins, directions = np.empty((n, 3), np.float32), np.empty((n, 3), np.float32)
    lengths = np.empty(n, np.float32)
    for i in range(n):
        k = chosen[i]
        x, y = (pixels[k] % width - center_u) / f, (pixels[k] // width - center_v) / f
        _set_ray(origins[i], directions[i], x, y, R_CB, p_CB, near)
        lengths[i] = depths[k] - near
    return chosen[:n], origins, directions, lengths
