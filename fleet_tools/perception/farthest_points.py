"""Farthest-point sampling of thousands of points in a fraction of a millisecond.

Gonzalez, "Clustering to minimize the maximum intercluster distance", 1985: each sample is the point
farthest from all samples before it, so that no point is more than twice as far from the samples as
with the best choice. Points are put into the cells of a grid; a cell whose points are all nearer to
a former sample than its box is to the new one is left out.
"""

import numpy as np

from fleet_tools.utils.compiled import compiled

_POINTS_PER_CELL = 32
"""About the number of points in a cell that is not empty."""


def farthest_indices(points: np.ndarray, count: int) -> np.ndarray:
    """Returns indices by farthest-point sampling, from the point farthest from the centroid on.

    Of points that are equally far, the first is chosen. The first k indices are those of k samples.

    Args:
        points: (n, 3) float32, finite, with n >= count > 0.
        count: Number of samples.

    Returns:
        (count,) indices.
    """
    p = points.astype(np.float64)
    order, starts = _cells(p)
    return _sample(np.ascontiguousarray(p[order]), order, starts, count)


def farthest_indices_by_blas(points: np.ndarray, count: int) -> np.ndarray:
    """Returns indices by farthest-point sampling, with the rounding of version 0.1.

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


@compiled
def _cells(p):
    """Returns indices of points, sorted by cells, and where each cell that is not empty begins."""
    n = len(p)
    low, high = p[0].copy(), p[0].copy()
    for i in range(n):
        for j in range(3):
            low[j], high[j] = min(low[j], p[i, j]), max(high[j], p[i, j])
    longest = max(high[0] - low[0], high[1] - low[1], high[2] - low[2])
    # Points lie on surfaces: a cube of m x m x m cells has some m x m that are not empty.
    m = max(1, int(np.sqrt(n / _POINTS_PER_CELL)))
    cell_of = np.zeros(n, np.int64)
    scale = m / longest if longest > 0 else 0.0
    for i in range(n):
        for j in range(3):
            k = min(m - 1, int((p[i, j] - low[j]) * scale))
            cell_of[i] = cell_of[i] * m + k
    first = np.zeros(m**3 + 1, np.int64)
    for i in range(n):
        first[cell_of[i] + 1] += 1
    used = 0
    for c in range(m**3):
        used += first[c + 1] > 0
        first[c + 1] += first[c]
    starts = np.zeros(used + 1, np.int64)
    k = 0
    for c in range(m**3):
        if first[c + 1] > first[c]:
            k += 1
            starts[k] = first[c + 1]
    order = np.zeros(n, np.int64)
    for i in range(n):
        order[first[cell_of[i]]] = i
        first[cell_of[i]] += 1
    return order, starts


@compiled
def _sample(p, order, starts, count):
    """Returns indices (count,) of samples of points (n, 3), sorted by cells."""
    n, cells = len(p), len(starts) - 1
    center = np.zeros(3)
    for i in range(n):
        for j in range(3):
            center[j] += p[i, j] / n
    low, high = np.zeros((cells, 3)), np.zeros((cells, 3))
    for c in range(cells):
        low[c] = high[c] = p[starts[c]]
        for i in range(starts[c], starts[c + 1]):
            for j in range(3):
                low[c, j], high[c, j] = min(low[c, j], p[i, j]), max(high[c, j], p[i, j])

    picked = np.zeros(count, np.int64)
    k, best = 0, -1.0
    for i in range(n):
        x, y, z = p[i, 0] - center[0], p[i, 1] - center[1], p[i, 2] - center[2]
        square = x * x + y * y + z * z
        if square > best or (square == best and order[i] < order[k]):
            k, best = i, square
    picked[0] = order[k]

    nearest = np.full(n, np.inf)  # square of the distance to the nearest sample
    largest, farthest = np.full(cells, np.inf), starts[:-1].copy()  # by cell: its maximum
    for sample in range(1, count):
        a, b, d = p[k, 0], p[k, 1], p[k, 2]
        for c in range(cells):
            x = max(low[c, 0] - a, a - high[c, 0], 0.0)
            y = max(low[c, 1] - b, b - high[c, 1], 0.0)
            z = max(low[c, 2] - d, d - high[c, 2], 0.0)
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
    return picked
