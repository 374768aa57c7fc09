"""The arithmetic of `ray_casting`: pixels of windows, and rays through them.

It is written entry by entry, without matrix products, whose rounding depends on the processor.
"""

import numpy as np

from fleet_tools.utils.compiled import compiled


def poses_in_camera(X_WC, X_WB):
    """Returns the poses of frames in a camera.

    Args:
        X_WC: (3, 4), pose of the camera.
        X_WB: (n, 3, 4), poses of the frames.

    Returns:
        R_CB (n, 3, 3) and p_CB (n, 3).
    """
    R_CB, p_CB = np.zeros((len(X_WB), 3, 3)), np.zeros((len(X_WB), 3))
    for k in range(3):
        R_CB += X_WC[k, :3, None] * X_WB[:, k, None, :3]
        p_CB += X_WC[k, :3] * (X_WB[:, k, 3, None] - X_WC[k, 3])
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
    f, center_u, center_v = intrinsics
    index = np.arange(8)  # of the corners: bit j says which end of axis j it is
    corners = np.repeat(p_CB[:, None], 8, axis=1)
    for j in range(3):
        corners += R_CB[:, None, :, j] * boxes[:, (index >> j) & 1, j, None]
    found, seen = [corners], [np.greater_equal(corners[..., 2], near)]
    with np.errstate(divide="ignore", invalid="ignore"):  # where a point is not seen
        for j in range(3):  # where edges pass the nearest depth
            other = corners[:, index ^ (1 << j)]
            t = (near - corners[..., 2]) / (other[..., 2] - corners[..., 2])
            crossing = corners + t[..., None] * (other - corners)
            crossing[..., 2] = near
            found.append(crossing)
            seen.append(~seen[0] & (other[..., 2] >= near))
        (x, y, z), seen = np.moveaxis(np.concatenate(found, axis=1), 2, 0), np.hstack(seen)
        uv = np.stack([center_u + f * x / z, center_v + f * y / z], axis=2)
    low = np.where(seen[..., None], uv, np.inf).min(axis=1)
    high = np.where(seen[..., None], uv, -np.inf).max(axis=1)
    # A pixel more on each side, for rounding.
    windows = np.hstack([np.floor(low) - 1, np.ceil(high) + 2])
    windows = np.minimum(np.maximum(windows, 0), np.tile(size, 2))
    return np.where(seen.any(axis=1, keepdims=True), windows, 0).astype(np.int64)


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
    pixels = (np.arange(top, bottom)[:, None] * width + np.arange(left, right)).ravel()
    x, y = (np.arange(left, right) - center_u) / f, (np.arange(top, bottom) - center_v) / f
    return pixels, *_rays(np.tile(x, len(y)), np.repeat(y, len(x)), R_CB, p_CB, near)


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
    u, v = pixels % width, pixels // width
    (chosen,) = np.nonzero((left <= u) & (u < right) & (top <= v) & (v < bottom))
    x, y = (u[chosen] - center_u) / f, (v[chosen] - center_v) / f
    lengths = (depths[chosen].astype(np.float64) - near).astype(np.float32)
    return chosen, *_rays(x, y, R_CB, p_CB, near), lengths


def _rays(x, y, R_CB, p_CB, near):
    """Returns origins and directions (n, 3) float32 of rays in B; see `rays_of_window`.

    Args:
        x: (n,), where rays pass the depth 1 of the camera.
        y: (n,), likewise.
        R_CB: (3, 3), rotation of the frame B in the camera.
        p_CB: (3,), its origin there, m.
        near: Depth at which rays begin, m.
    """
    origins, directions = np.empty((len(x), 3), np.float32), np.empty((len(x), 3), np.float32)
    _set_rays(origins, directions, x, y, R_CB, p_CB, near)
    return origins, directions


@compiled
def _set_rays(origins, directions, x, y, R_CB, p_CB, near):
    for j in range(3):
        o = p_CB[0] * R_CB[0, j] + p_CB[1] * R_CB[1, j] + p_CB[2] * R_CB[2, j]
        for i in range(x.shape[0]):
            d = x[i] * R_CB[0, j] + y[i] * R_CB[1, j] + R_CB[2, j]
            directions[i, j], origins[i, j] = d, near * d - o
