"""The tool in the hand as delayed cameras show it, and how the delay is told from it.

A cloud is given in the present frame of the end effector, and shows the world when images were
taken. Until the present the hand has moved on, so of a delayed cloud the tool lies where the hand
held it then: displaced by as much as the hand has moved.
"""

from typing import NamedTuple, Self

import numpy as np


class HeldTool(NamedTuple):
    """What is remembered of the tool's keypoints, of a batch of B episodes.

    The hand holds the tool without slip. So of the possible delays, no step and one step, that is
    taken with which the keypoints have varied least in the hand, without a delay if both are equal.

    Attributes:
        X_WE: Pose of the end effector in the step before, (B, 3, 4).
        steps: Number of steps, (B,).
        means: Mean keypoints in the hand by delay, (B, 2, rows, 3), m.
        spreads: Sums of squared distances from the means by delay, (B, 2), m^2.
    """

    X_WE: np.ndarray
    steps: np.ndarray
    means: np.ndarray
    spreads: np.ndarray

    @classmethod
    def begin(cls, shown: np.ndarray, X_WE: np.ndarray) -> Self:
        """Returns the memory before the first step, which cameras show without a delay.

        Args:
            shown: Keypoints in the first step, see `follow`.
            X_WE: Pose of the end effector in it, (B, 3, 4).
        """
        both = np.stack([shown, shown], 1)
        return cls(X_WE, np.zeros(len(shown)), both, np.zeros(both.shape[:2]))

    def follow(self, shown: np.ndarray, X_WE: np.ndarray) -> tuple[np.ndarray, Self]:
        """Returns the keypoints in the hand, (B, rows, 3), m, and the next memory.

        Args:
            shown: Keypoints where the cloud shows them, in the present frame of the end effector,
                (B, rows, 3), m.
            X_WE: Pose of the end effector, (B, 3, 4).
        """
        held = np.stack([shown, in_other_frame(shown, X_WE, self.X_WE)], 1)
        steps = self.steps + 1
        means = self.means + (held - self.means) / steps[:, None, None, None]
        spreads = self.spreads + ((held - self.means) * (held - means)).sum((2, 3))
        delay = (spreads[:, 1] < spreads[:, 0]).astype(int)
        return held[np.arange(len(held)), delay], self._replace(
            X_WE=X_WE, steps=steps, means=means, spreads=spreads
        )


def in_other_frame(points: np.ndarray, X_WA: np.ndarray, X_WB: np.ndarray) -> np.ndarray:
    """Returns points of a frame A in a frame B, (n, rows, 3), m.

    Args:
        points: Points in A, (n, rows, 3), m.
        X_WA: Poses of A in the world, (n, 3, 4).
        X_WB: Poses of B, likewise.
    """
    p_W = points @ X_WA[..., :3].swapaxes(-1, -2) + X_WA[..., None, :, 3]
    return (p_W - X_WB[..., None, :, 3]) @ X_WB[..., :3]
