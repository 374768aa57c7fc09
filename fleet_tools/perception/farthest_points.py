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


def _cells(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns indices of points, sorted by cells, and where each cell that is not empty begins."""
    low = p.min(axis=0)
    longest = (p.max(axis=0) - low).max()
    # Points lie on surfaces: a cube of m x m x m cells has some m x m that are not empty.
    m = max(1, int(np.sqrt(len(p) / _POINTS_PER_CELL)))
    scale = m / longest if longest > 0 else 0.0
    x, y, z = np.minimum(m - 1, ((p - low) * scale).astype(np.int64)).T
    cell = (x * m + y) * m + z
    counts = np.bincount(cell)
    # numpy sorts numbers of 16 bits in linear time.
    order = np.argsort(cell.astype(np.min_scalar_type(m**3)), kind="stable")
    return order, np.concatenate([[0], np.cumsum(counts[counts > 0])])


def _sample(p: np.ndarray, order: np.ndarray, starts: np.ndarray, count: int) -> np.ndarray:
    """Returns indices (count,) of samples of points (n, 3), sorted by cells."""
    low, high = np.minimum.reduceat(p, starts[:-1]), np.maximum.reduceat(p, starts[:-1])
    from_center = np.square(p - np.cumsum(p / len(p), axis=0)[-1])
    square = from_center[:, 0] + from_center[:, 1] + from_center[:, 2]
    (equal,) = np.nonzero(square == square.max())
    picked = np.zeros(count, np.int64)
    picked[0] = equal[order[equal].argmin()]
    nearest = np.full(len(p), np.inf)  # square of the distance to the nearest sample
    largest, farthest = np.full(len(low), np.inf), starts[:-1].copy()  # by cell: its maximum
    _pick(p, order, starts, low, high, nearest, largest, farthest, picked)
    return order[picked]


@compiled
def _pick(p, order, starts, low, high, nearest, largest, farthest, picked):
    """Sets indices of all samples but the first among sorted points; see `_sample`."""
    k = picked[0]
    for sample in range(1, picked.shape[0]):
        a, b, d = p[k, 0], p[k, 1], p[k, 2]
        for c in range(low.shape[0]):
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
        for c in range(1, low.shape[0]):
            i = farthest[c]
            if largest[c] > nearest[k] or (largest[c] == nearest[k] and order[i] < order[k]):
                k = i
        picked[sample] = k
