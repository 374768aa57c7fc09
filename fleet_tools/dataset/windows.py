"""Windows of steps over episodes: the steps of an episode to which an index refers."""

from collections.abc import Sequence

import numpy as np


class Windows:
    """Windows of L steps over episodes, in the order of the episodes and of time.

    In an episode of T steps, windows begin at steps 0, stride, 2 stride, ...: with padding, at all
    of these before T, so that the last ones extend beyond the end; without, only where L steps
    remain.

    Args:
        steps: (n,), number of steps T of each episode; it may be 0.
        length: Number of steps of a window, L, at least 1.
        stride: Number of steps between the beginnings of windows, at least 1.
        padded: Whether windows may extend beyond the end of their episode.
    """

    def __init__(self, steps: np.ndarray, length: int, stride: int, padded: bool) -> None:
        self._steps, self._length, self._stride = np.asarray(steps, np.int64), length, stride
        room = self._steps if padded else self._steps - length + 1
        self._ends = np.cumsum(-(-np.maximum(room, 0) // stride))

    def __len__(self) -> int:
        """Returns the number of windows."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def locate(
        self, indices: Sequence[int] | np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Locates windows.

        Args:
            indices: (k,) integers; negative ones count from the end, as in a list.

        Returns:
            (k,) each: the episode, the first step in it, and the number of steps, at most L.

        Raises:
            IndexError: There is no such window.
        """
        given = np.asarray(indices, np.int64).reshape(-1)
        indices = np.where(given < 0, given + len(self), given)
        outside = (indices < 0) | (indices >= len(self))
        if outside.any():
            raise IndexError(f"There is no item {given[outside][0]}; there are {len(self)}.")
        episodes = np.searchsorted(self._ends, indices, side="right")
        before = np.where(episodes > 0, self._ends[episodes - 1], 0)
        starts = (indices - before) * self._stride
        return episodes, starts, np.minimum(self._steps[episodes] - starts, self._length)
