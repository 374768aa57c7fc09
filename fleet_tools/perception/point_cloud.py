"""Point clouds from depth images, sampled to a fixed number of points.

Farthest-point sampling takes a fraction of a millisecond for thousands of points. Gonzalez,
"Clustering to minimize the maximum intercluster distance", 1985. Each sample is the point farthest
from all samples before it, so that no point is more than twice as far from the samples as with the
best choice. Points are put into the cells of a grid; a cell whose points are all nearer to a former
sample than its box is to the new one is left out.
"""

from collections.abc import Callable

import numpy as np

from fleet_tools.perception.camera_view import Hits, Pinhole
from fleet_tools.utils.compiled import compiled

ABSENT, TOOL_MASK, OBJECT_MASK, PLACE_MASK = 0.0, 1.0, -1.0, -2.0
"""Values of a cloud's fourth column."""

_ROWS_PER_PLACE = 32
"""Of so many rows of the object, one is the marked place; but at least one of all."""

Sampling = Callable[[np.ndarray, int], np.ndarray]
"""Given points (n, 3) and a number of at most n, returns as many indices of theirs."""

MAX_POINTS = 1024
"""Largest number of points that one camera gives of the tool, and of the object."""

_POINTS_PER_CELL = 32
"""About the number of points in a cell that is not empty."""


def segment_hits(depth: np.ndarray, segments: np.ndarray, segment: int) -> Hits:
    """Returns the points of one segment in an image.

    Args:
        depth: (height, width), m; 0 and infinity are out of range.
        segments: (height, width), see `fleet_tools.perception.camera_view`.
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
    tool: np.ndarray,
    object: np.ndarray,
    size: tuple[int, int],
    sampling: Sampling,
    place: np.ndarray | None = None,
) -> np.ndarray:
    """Returns a cloud of fixed size: the tool's points, then the object's, then the marked place.

    Args:
        tool: (n, 3), visible points of the tool.
        object: (m, 3), visible points of the object.
        size: Number of rows for the tool, and for the object.
        sampling: Chooses points if there are more.
        place: (3,), the marked place, which takes rows of the object's; None if there is none.

    Returns:
        (sum of size, 4) float32: the point, and 1 for the tool, -1 for the object or -2 for the
        place. A part that is out of view has rows of zeros.
    """
    marked = 0 if place is None else max(1, size[1] // _ROWS_PER_PLACE)
    sides = [(tool, size[0], TOOL_MASK), (object, size[1] - marked, OBJECT_MASK)]
    if place is not None:
        sides.append((place[None], marked, PLACE_MASK))
    return np.concatenate(
        [_side(p.astype(np.float32), count, mask, sampling) for p, count, mask in sides]
    )


def even_indices(points: np.ndarray, count: int) -> np.ndarray:
    """Returns indices (count,), evenly spaced in the order of the points."""
    return np.linspace(0, len(points) - 1, count).round().astype(int)


def farthest_indices(points: np.ndarray, count: int) -> np.ndarray:
    """Returns indices by farthest-point sampling, from the point farthest from the centroid on.

    Of points that are equally far, the first is chosen. The first k indices belong to k samples.

    Args:
        points: (n, 3) float32, finite, with n >= count > 0.
        count: Number of samples.

    Returns:
        (count,) indices.
    """
    p = points.astype(np.float64)
    order, starts = _cells(p)
    return _sample(np.ascontiguousarray(p[order]), order, starts, count)


def _cells(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns indices of points, sorted by cells, and where each cell that is not empty begins."""
    # Points lie on surfaces: a cube of m x m x m cells has some m x m that are not empty.
    m = max(1, int(np.sqrt(len(p) / _POINTS_PER_CELL)))
    first, order = np.zeros(m**3 + 1, np.int64), np.zeros(len(p), np.int64)
    starts = np.zeros(min(m**3, len(p)) + 1, np.int64)
    used = _sort_by_cells(p, m, np.zeros(len(p), np.int64), first, order, starts)
    return order, starts[: used + 1]


# Compiled functions allocate nothing, slice nothing and unpack nothing, which would take seconds to
# compile.


@compiled
def _sort_by_cells(p, m, cell_of, first, order, starts):
    """Sets the indices and the starts of `_cells`, and returns the number of cells in use."""
    n = p.shape[0]
    longest = 0.0
    for j in range(3):
        low = high = p[0, j]
        for i in range(n):
            low, high = min(low, p[i, j]), max(high, p[i, j])
        longest = max(longest, high - low)
    scale = m / longest if longest > 0.0 else 0.0
    for j in range(3):
        low = p[0, j]
        for i in range(n):
            low = min(low, p[i, j])
        for i in range(n):
            cell_of[i] = cell_of[i] * m + min(m - 1, int((p[i, j] - low) * scale))
    for i in range(n):
        first[cell_of[i] + 1] += 1
    used = 0
    for c in range(first.shape[0] - 1):
        if first[c + 1] > 0:
            used += 1
            starts[used] = first[c] + first[c + 1]
        first[c + 1] += first[c]
    for i in range(n):
        order[first[cell_of[i]]] = i
        first[cell_of[i]] += 1
    return used


def _sample(p: np.ndarray, order: np.ndarray, starts: np.ndarray, count: int) -> np.ndarray:
    """Returns indices (count,) of samples of points (n, 3), sorted by cells."""
    cells, nearest = len(starts) - 1, np.full(len(p), np.inf)
    low, high, largest = np.zeros((cells, 3)), np.zeros((cells, 3)), np.full(cells, np.inf)
    picked = np.zeros(count, np.int64)
    _pick(p, order, starts, low, high, nearest, largest, starts[:-1].copy(), picked)
    return picked


@compiled
def _pick(p, order, starts, low, high, nearest, largest, farthest, picked):
    """Sets indices of samples of sorted points.

    Args:
        p: (n, 3), points, sorted by cells.
        order: (n,), their indices.
        starts: (cells + 1,), where each cell begins.
        low: (cells, 3), room for the lowest corners of the cells' points.
        high: (cells, 3), room for the highest.
        nearest: (n,), square of the distance to the nearest sample: infinite.
        largest: (cells,), its maximum by cell: infinite.
        farthest: (cells,), where it is: anywhere in the cell.
        picked: (count,), the samples, to be set.
    """
    n, cells = p.shape[0], low.shape[0]
    u = v = w = 0.0  # the centroid
    for i in range(n):
        u, v, w = u + p[i, 0] / n, v + p[i, 1] / n, w + p[i, 2] / n
    for c in range(cells):
        for j in range(3):
            low[c, j] = high[c, j] = p[starts[c], j]
            for i in range(starts[c], starts[c + 1]):
                low[c, j], high[c, j] = min(low[c, j], p[i, j]), max(high[c, j], p[i, j])
    k, best = 0, -1.0
    for i in range(n):
        x, y, z = p[i, 0] - u, p[i, 1] - v, p[i, 2] - w
        square = x * x + y * y + z * z
        if square > best or (square == best and order[i] < order[k]):
            k, best = i, square
    picked[0] = order[k]
    for sample in range(1, picked.shape[0]):
        a, b, d = p[k, 0], p[k, 1], p[k, 2]
        for c in range(cells):
            x = max(max(low[c, 0] - a, a - high[c, 0]), 0.0)
            y = max(max(low[c, 1] - b, b - high[c, 1]), 0.0)
            z = max(max(low[c, 2] - d, d - high[c, 2]), 0.0)
            if x * x + y * y + z * z >= largest[c]:
                continue
            at, most = starts[c], -1.0
            for i in range(starts[c], starts[c + 1]):
                x, y, z = p[i, 0] - a, p[i, 1] - b, p[i, 2] - d
                square = x * x + y * y + z * z
                if square < nearest[i]:
                    nearest[i] = square
                if nearest[i] > most:  # in a cell, points keep their order
                    at, most = i, nearest[i]
            largest[c], farthest[c] = most, at
        k = farthest[0]
        for c in range(1, cells):
            i = farthest[c]
            if largest[c] > nearest[k] or (largest[c] == nearest[k] and order[i] < order[k]):
                k = i
        picked[sample] = order[k]


SAMPLINGS: dict[str, Sampling] = {"farthest": farthest_indices, "even": even_indices}
"""Samplings by name."""


def _side(points: np.ndarray, count: int, mask: float, sampling: Sampling) -> np.ndarray:
    rows = np.zeros((count, 4), np.float32)
    if len(points) == 0:
        return rows
    if len(points) > count:
        points = points[sampling(points, count)]
    rows[:, :3] = points[np.arange(count) % len(points)]
    rows[:, 3] = mask
    return rows
