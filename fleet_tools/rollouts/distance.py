"""The distance of two episodes in state, from what they observed."""

from collections.abc import Iterable

import numpy as np

from fleet_tools.rollouts.episode import Episode

_KEYPOINTS = ("tool_keypoints", "object_keypoints")


def compared_points(observations: Iterable[str]) -> list[str]:
    """Returns the kinds of points that are compared, of observations with these entries.

    Every observation mode stores the pose of the end effector, and thus its origin; `state` and
    `multitask_state` add the keypoints of tool and object.
    """
    names = set(observations)
    return ["end_effector", *(name for name in _KEYPOINTS if name in names)]


def distance(one: Episode, other: Episode) -> float | None:
    """Returns how far apart two episodes ever are, m.

    This is the largest distance between the two positions of a point in the world frame, over all
    `compared_points` and over all steps that both episodes have, their start included.

    Args:
        one: An episode.
        other: An episode of the same task and observation mode.

    Returns:
        The distance; None if a position is not finite, or if they observed different points.
    """
    steps = min(len(one), len(other))
    first, second = (_positions(episode, steps + 1) for episode in (one, other))
    if first.shape != second.shape or not np.isfinite([first, second]).all():
        return None
    return float(np.linalg.norm(first - second, axis=-1).max())


def _positions(episode: Episode, rows: int) -> np.ndarray:
    """Returns the points of the first rows in the world frame, (rows, points, 3) float64."""
    names = [name for name in _KEYPOINTS if name in episode.observations]
    X_WE, *keypoints = (
        episode.observations[name][:rows].astype(np.float64)
        for name in ("end_effector_pose", *names)
    )
    R_WE, p_WE = X_WE[..., :3], X_WE[..., None, :, 3]
    # A fourth entry of a keypoint is a mask; masked ones are zero, the origin of E.
    p_EQ = np.concatenate([np.zeros_like(p_WE), *(each[..., :3] for each in keypoints)], axis=-2)
    with np.errstate(invalid="ignore"):  # what is not finite stays so
        # By columns: einsum and BLAS may round the same numbers differently by their alignment.
        return p_WE + sum(p_EQ[..., j, None] * R_WE[:, None, :, j] for j in range(3))
