"""Point clouds: points from depth images, and clouds of fixed size from any number of points."""

import numpy as np

from fleet_tools.errors import require_name
from fleet_tools.perception.pinhole import Pinhole

ABSENT, TOOL_MASK, OBJECT_MASK = 0.0, 1.0, -1.0
"""Values of a cloud's fourth column."""

MAX_POINTS = 1024
"""Largest number of points that one camera gives of the tool, and of the object."""


def segment_points(
    depth: np.ndarray, segments: np.ndarray, segment: int, pinhole: Pinhole
) -> np.ndarray:
    """Returns the points that a camera sees of one segment.

    They are the back-projected centres of pixels in range, at most `MAX_POINTS` of them, evenly
    spaced in the order of the pixels.

    Args:
        depth: (height, width), m; 0 and infinity are out of range.
        segments: (height, width), see `fleet_tools.perception.segmentation`.
        segment: The segment.
        pinhole: Intrinsics of the camera.

    Returns:
        (n, 3), in the camera's frame C, m.
    """
    in_range = np.isfinite(depth) & (depth > 0.0)
    pixels = np.flatnonzero((segments == segment) & in_range)
    if len(pixels) > MAX_POINTS:
        pixels = pixels[even_indices(pixels, MAX_POINTS)]
    v, u = np.divmod(pixels, pinhole.width)
    return pinhole.back_project(np.column_stack([u, v]), depth.ravel()[pixels])


def stack(tool: np.ndarray, object: np.ndarray, size: tuple[int, int], sampling: str) -> np.ndarray:
    """Returns a cloud of fixed size: the tool's points, then the object's.

    Args:
        tool: (n, 3), visible points of the tool.
        object: (m, 3), visible points of the object.
        size: Number of rows for the tool, and for the object.
        sampling: A name in `SAMPLINGS`.

    Returns:
        (sum of size, 4) float32: the point, and 1 for the tool or -1 for the object. A part that
        is out of view has rows of zeros.
    """
    sides = ((tool, size[0], TOOL_MASK), (object, size[1], OBJECT_MASK))
    return np.concatenate(
        [_side(p.astype(np.float32), count, mask, sampling) for p, count, mask in sides]
    )


def even_indices(points: np.ndarray, count: int) -> np.ndarray:
    """Returns indices (count,), evenly spaced in the order of the points."""
    return np.linspace(0, len(points) - 1, count).round().astype(int)


def farthest_indices(points: np.ndarray, count: int) -> np.ndarray:
    """Returns indices by farthest-point sampling, from the point farthest from the centroid on.

    Gonzalez, "Clustering to minimize the maximum intercluster distance", 1985: no point is more
    than twice as far from the samples as with the best choice. The first k indices are those of k
    samples.

    Args:
        points: (n, 3) float32, with n >= count.
        count: Number of samples.

    Returns:
        (count,) indices.
    """
    p = points - points.mean(axis=0)
    square = np.square(p).sum(axis=1)
    # |p_i - p_k|^2 for all i is one row times this matrix.
    ones = np.ones_like(square)
    columns = np.stack([*p.T, square, ones])
    rows = np.column_stack([-2 * p, ones, square])
    picked = np.empty(count, dtype=int)
    picked[0] = k = int(square.argmax())
    nearest = rows[k] @ columns
    distance = np.empty_like(nearest)
    for i in range(1, count):
        picked[i] = k = nearest.argmax()
        np.dot(rows[k], columns, out=distance)
        np.minimum(nearest, distance, out=nearest)
    return picked


SAMPLINGS = {"farthest": farthest_indices, "even": even_indices}


def require_sampling(name: str) -> None:
    """Checks that there is such a sampling.

    Raises:
        UnknownNameError: There is not.
    """
    require_name("cloud_sampling", name, SAMPLINGS)


def _side(points: np.ndarray, count: int, mask: float, sampling: str) -> np.ndarray:
    rows = np.zeros((count, 4), np.float32)
    if len(points) == 0:
        return rows
    if len(points) > count:
        points = points[SAMPLINGS[sampling](points, count)]
    rows[:, :3] = points[np.arange(count) % len(points)]
    rows[:, 3] = mask
    return rows
