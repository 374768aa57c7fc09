"""Compresses point clouds of an episode: integers on a grid, and interpolation between them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fleet_tools.perception.point_cloud import (
    OBJECT_MASK,
    PLACE_MASK,
    TOOL_MASK,
    farthest_indices,
)

PARTS = (TOOL_MASK, OBJECT_MASK, PLACE_MASK)
"""Masks of the parts of a cloud, in the order in which they are sent."""


def in_units(values: np.ndarray, exponents: np.ndarray | int) -> np.ndarray:
    """Returns the nearest multiples of units."""
    return np.rint(np.ldexp(values.astype(float), -exponents)).astype(np.int64)


def exponent_of(unit: float) -> int:
    """Returns the exponent of the largest power of two that is not larger than a unit."""
    return int(np.frexp(unit)[1]) - 1


@dataclass(frozen=True, eq=False)
class GridClouds:
    """The clouds of an episode on a grid, part by part.

    Attributes:
        counts: Numbers of points and of rows of each part, (clouds, 2 parts).
        lowest: Lowest corner of each part, (clouds parts, 3), in units; 0 where there is none.
        points: All points above these, (n, 3): the step in x from the point before, y and z.
    """

    counts: np.ndarray
    lowest: np.ndarray
    points: np.ndarray

    @classmethod
    def of(cls, clouds: np.ndarray, exponent: int, most: int | None) -> "GridClouds":
        """Returns clouds on a grid.

        Args:
            clouds: (n, N, 4), with a mask in the last column.
            exponent: Exponent of the unit of length, a power of two.
            most: Largest number of points of a part; None for all.
        """
        counts, corners, points = [], [], []
        for cloud in clouds:
            for mask in PARTS:
                rows = cloud[cloud[:, 3] == mask, :3]
                grid = np.unique(in_units(_fewer(rows, most), exponent), axis=0)
                counts.append((len(grid), len(rows)))
                corners.append(grid.min(0) if len(grid) else np.zeros(3, np.int64))
                grid = grid - corners[-1]
                grid[:, 0] = np.diff(grid[:, 0], prepend=0)
                points.append(grid)
        shape = (len(clouds), 2 * len(PARTS))
        empty = np.zeros((0, 3), np.int64)
        return cls(
            np.array(counts, np.int64).reshape(shape),
            np.array(corners, np.int64).reshape(-1, 3),
            np.concatenate([empty, *points]),
        )

    def rows(self, size: int, exponent: int) -> Iterator[np.ndarray]:
        """Yields the clouds, (size, 4) float32: a part's points again and again fill its rows.

        Raises:
            ValueError: Counts, points and the size do not fit together.
        """
        offset = 0
        pairs = self.counts.reshape(-1, len(PARTS), 2)
        for number, parts in enumerate(pairs):
            cloud, filled = np.zeros((size, 4), np.float32), 0
            for part, (count, rows) in enumerate(parts.tolist()):
                if not 0 <= count <= rows <= size - filled or (count == 0) != (rows == 0):
                    raise ValueError("a cloud has too many points, or none")
                grid = self.points[offset : offset + count].copy()
                if len(grid) < count:
                    raise ValueError("a cloud lacks points")
                offset += count
                grid[:, 0] = np.cumsum(grid[:, 0])
                grid += self.lowest[number * len(PARTS) + part]
                if count:
                    cloud[filled : filled + rows, :3] = np.ldexp(
                        grid[np.arange(rows) % count].astype(float), exponent
                    )
                    cloud[filled : filled + rows, 3] = PARTS[part]
                filled += rows
            yield cloud


def moved(given: np.ndarray, hand: np.ndarray | None, steps: int, every: int) -> np.ndarray:
    """Returns the clouds of all steps; those between given clouds are moved with the hand.

    Args:
        given: The clouds of each `every`-th step, (n, N, 4).
        hand: [R_WE | p_WE] of all steps, (steps, 3, 4).
        steps: Number of steps.
        every: Steps from one given cloud to the next.
    """
    if every == 1:
        return given
    assert hand is not None  # uploads require it
    since = np.arange(steps) // every
    clouds, X_WE = given[since].astype(float), hand.astype(float)
    then = X_WE[since * every]
    # Points of the object and of the place rest in the world, which is seen from the hand.
    p_W = _times(then[:, :, :3], clouds[..., :3]) + then[:, None, :, 3]
    p_E = _times(np.swapaxes(X_WE[:, :, :3], 1, 2), p_W - X_WE[:, None, :, 3])
    rests = (
        np.isin(clouds[..., 3], (OBJECT_MASK, PLACE_MASK)) & (np.arange(steps) % every > 0)[:, None]
    )
    clouds[..., :3] = np.where(rests[..., None], p_E, clouds[..., :3])
    return clouds.astype(np.float32)


def _times(R: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Returns rotated points, (n, 3, 3) and (n, N, 3); sums are the same on every processor."""
    x, y, z = (p[..., None, axis] * R[:, None, :, axis] for axis in range(3))
    return x + y + z


def _fewer(points: np.ndarray, count: int | None) -> np.ndarray:
    if count is None or len(points) <= count:
        return points
    return points[farthest_indices(np.ascontiguousarray(points), count)]
