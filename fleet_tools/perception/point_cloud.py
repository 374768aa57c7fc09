"""Point clouds of fixed size out of however many points there are."""

import numpy as np

from fleet_tools.errors import UnknownNameError

ABSENT, TOOL_MASK, OBJECT_MASK = 0.0, 1.0, -1.0
"""Values of a cloud's fourth column."""


def stack(tool: np.ndarray, object: np.ndarray, size: tuple[int, int], sampling: str) -> np.ndarray:
    """Returns a cloud of fixed size: the tool's points, then the object's.

    Args:
        tool, object: (n, 3) and (m, 3), points that were seen.
        size: How many rows either has.
        sampling: A name in `SAMPLINGS`.

    Returns:
        (sum of size, 4) float32: the point, and 1 for the tool or -1 for the object. What is out
        of view altogether has rows of zeros.
    """
    sides = ((tool, size[0], TOOL_MASK), (object, size[1], OBJECT_MASK))
    return np.concatenate([_side(np.float32(p), count, mask, sampling) for p, count, mask in sides])


def even_indices(points: np.ndarray, count: int) -> np.ndarray:
    """Picks indices (count,) at even distances in the order of the points."""
    return np.linspace(0, len(points) - 1, count).round().astype(int)


def farthest_indices(points: np.ndarray, count: int) -> np.ndarray:
    """Picks the point farthest from the middle, then always the one farthest from those picked.

    Gonzalez, "Clustering to minimize the maximum intercluster distance", 1985: no point is more
    than twice as far from the picked ones as with the best choice. The first k indices are those
    of k points.

    Args:
        points: (n, 3) float32, with n >= count.
        count: How many.

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
    """Raises UnknownNameError unless there is such a sampling."""
    if name not in SAMPLINGS:
        raise UnknownNameError("cloud_sampling", name, SAMPLINGS)


def _side(points: np.ndarray, count: int, mask: float, sampling: str) -> np.ndarray:
    rows = np.zeros((count, 4), np.float32)
    if len(points) == 0:
        return rows
    if len(points) > count:
        points = points[SAMPLINGS[sampling](points, count)]
    rows[:, :3] = points[np.arange(count) % len(points)]
    rows[:, 3] = mask
    return rows
