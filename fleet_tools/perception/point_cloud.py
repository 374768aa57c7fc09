"""Point clouds: points from depth images, and clouds of fixed size from any number of points."""

from collections.abc import Callable

import numpy as np

from fleet_tools.perception.farthest_points import farthest_indices, farthest_indices_by_blas
from fleet_tools.perception.hits import Hits
from fleet_tools.perception.pinhole import Pinhole

ABSENT, TOOL_MASK, OBJECT_MASK = 0.0, 1.0, -1.0
"""Values of a cloud's fourth column."""

Sampling = Callable[[np.ndarray, int], np.ndarray]
"""Given points (n, 3) and a number of at most n, returns as many indices of theirs."""

MAX_POINTS = 1024
"""Largest number of points that one camera gives of the tool, and of the object."""


def segment_hits(depth: np.ndarray, segments: np.ndarray, segment: int) -> Hits:
    """Returns what an image shows of one segment.

    Args:
        depth: (height, width), m; 0 and infinity are out of range.
        segments: (height, width), see `fleet_tools.perception.segmentation`.
        segment: The segment.
    """
    in_range = np.isfinite(depth) & (depth > 0.0)
    pixels = np.flatnonzero((segments == segment) & in_range)
    return Hits(pixels, depth.ravel()[pixels])


def points_of(hits: Hits, pinhole: Pinhole) -> np.ndarray:
    """Returns the back-projected centres of pixels.

    At most `MAX_POINTS` of them, evenly spaced in the order of the pixels.

    Args:
        hits: The pixels and their depths.
        pinhole: Intrinsics of the camera.

    Returns:
        (n, 3), in the camera's frame C, m.
    """
    pixels, depths = hits.pixels, hits.depths
    if len(pixels) > MAX_POINTS:
        chosen = even_indices(pixels, MAX_POINTS)
        pixels, depths = pixels[chosen], depths[chosen]
    v, u = np.divmod(pixels, pinhole.width)
    return pinhole.back_project(np.column_stack([u, v]), depths)


def stack(
    tool: np.ndarray, object: np.ndarray, size: tuple[int, int], sampling: Sampling
) -> np.ndarray:
    """Returns a cloud of fixed size: the tool's points, then the object's.

    Args:
        tool: (n, 3), visible points of the tool.
        object: (m, 3), visible points of the object.
        size: Number of rows for the tool, and for the object.
        sampling: Chooses points if there are more.

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


SAMPLINGS: dict[str, Sampling] = {"farthest": farthest_indices, "even": even_indices}
RENDERED_SAMPLINGS = SAMPLINGS | {"farthest": farthest_indices_by_blas}
"""Those of clouds that are rendered, which keep the bits of version 0.1."""


def _side(points: np.ndarray, count: int, mask: float, sampling: Sampling) -> np.ndarray:
    rows = np.zeros((count, 4), np.float32)
    if len(points) == 0:
        return rows
    if len(points) > count:
        points = points[sampling(points, count)]
    rows[:, :3] = points[np.arange(count) % len(points)]
    rows[:, 3] = mask
    return rows
