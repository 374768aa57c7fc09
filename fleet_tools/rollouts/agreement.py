"""Compares a repeated episode with the stored one: bits, outcome and states.

On the processor that made an episode, every bit agrees. Another one may round differently; then the
end and the distance, how far apart their points ever are, say whether the two are still the same in
substance.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fleet_tools.errors import OrderDependenceError
from fleet_tools.rollouts.episode import Episode

# Drake is imported with the environment.
if TYPE_CHECKING:
    from fleet_tools.sim.world_state import WorldState


REPEAT: Any = "repeat"
"""The last job of a worker: to try its first episode again, see `require_repeated`."""


def require_repeated(policy: str, episode: str, first: np.ndarray, again: np.ndarray) -> None:
    """Checks that a policy repeats its actions, whatever it did in between.

    Args:
        policy: Name of the policy.
        episode: Name of an episode that its worker tries again after all others.
        first: Its actions then, (T, n).
        again: Its actions now, (T', n).

    Raises:
        OrderDependenceError: They differ; the message names the first step that does.
    """
    steps = min(len(first), len(again))
    differing = np.flatnonzero((first[:steps] != again[:steps]).any(axis=1))
    if not len(differing) and len(first) == len(again):
        return
    step = int(differing[0]) if len(differing) else steps
    raise OrderDependenceError(
        f"The policy {policy} does not repeat its actions: {episode}, run again after other "
        f"episodes in one worker, differs from step {step} on (counted from 0). So results depend "
        "on the order of episodes and the number of workers. Some state survives `reset`: clear it "
        "there, and define `reset(self, seed=0)` to seed random generators again."
    )


WITHIN_M = 0.001
"""Distance up to which two episodes that end alike count as the same in state, m."""


@dataclass(frozen=True)
class Agreement:
    """Agreement of two episodes.

    Attributes:
        identical: Whether every compared bit agrees.
        same_outcome: Whether both end alike: with the same outcome, after as many steps.
        distance_m: How far apart they are, see `fleet_tools.rollouts.agreement`; None if it cannot
            be told.
    """

    identical: bool
    same_outcome: bool
    distance_m: float | None

    def within(self, limit_m: float) -> bool:
        """Returns whether they end alike, at most so far apart, m."""
        near = self.distance_m is not None and self.distance_m <= limit_m
        return self.same_outcome and (self.identical or near)


def counts(agreements: Iterable[Agreement], within_m: float = WITHIN_M) -> dict[str, Any]:
    """Returns numbers of episodes, from strict to loose, as plain JSON data.

    Args:
        agreements: How episodes agree with the stored ones.
        within_m: Largest distance of episodes that count as the same in state, m.
    """
    agreements = list(agreements)
    distances = [each.distance_m for each in agreements if each.distance_m is not None]
    return {
        "episodes": len(agreements),
        "identical": sum(each.identical for each in agreements),
        "same_outcome": sum(each.same_outcome for each in agreements),
        "within": sum(each.within(within_m) for each in agreements),
        "within_m": within_m,
        "measured": len(distances),
        "largest_distance_m": max(distances, default=None),
    }


_END_EFFECTOR, _POSE = "end_effector", "end_effector_pose"
_KEYPOINTS = ("tool_keypoints", "object_keypoints")
_DECIMALS = 6  # of stored points: micrometres

Points = Mapping[str, Sequence[tuple[float, float, float]]]
"""Positions in the world frame by kind of point, m."""


def compared_points(observations: Iterable[str]) -> list[str]:
    """Returns the kinds of points that are compared, of observations with these entries.

    Every observation mode of tool use stores the pose of the end effector, and thus its origin;
    `state` and `multitask_state` add the keypoints of tool and object. Of other arenas no points
    are known.
    """
    names = set(observations)
    if _POSE not in names:
        return []
    return [_END_EFFECTOR, *(name for name in _KEYPOINTS if name in names)]


def distance(one: Episode, other: Episode) -> float | None:
    """Returns how far apart two episodes ever are, m.

    This is the largest distance between the two positions of a point in the world frame, over all
    `compared_points` and over all steps that both episodes have, their start included.

    Args:
        one: An episode.
        other: An episode of the same task and observation mode.

    Returns:
        The distance; None if a position is not finite, or if they observed different points, or
        none that are known.
    """
    if not all(compared_points(episode.observations) for episode in (one, other)):
        return None
    steps = min(len(one), len(other))
    return _largest(*(_positions(episode, steps + 1) for episode in (one, other)))


def points(state: "WorldState") -> Points | None:
    """Returns the compared points of one moment, rounded to micrometres.

    They are the same in every observation mode.

    Returns:
        The points; None if a position is not finite.
    """
    rows = {
        _END_EFFECTOR: [state.X_WE.translation()],
        _KEYPOINTS[0]: list(state.p_W_tool.values()),
        _KEYPOINTS[1]: list(state.p_W_object.values()),
    }
    if not all(np.isfinite(row).all() for of_kind in rows.values() for row in of_kind):
        return None
    return {
        kind: tuple((*np.round(row, _DECIMALS).tolist(),) for row in of_kind)
        for kind, of_kind in rows.items()
    }


def distance_of_points(one: Points | None, other: Points | None) -> float | None:
    """Returns the largest distance between the two positions of a point, m.

    Returns:
        The distance; None if there are no points, or different ones.
    """
    if not one or not other or one.keys() != other.keys():
        return None
    found = [_largest(*(np.array(each[kind], float) for each in (one, other))) for kind in one]
    known = [each for each in found if each is not None]
    return max(known) if len(known) == len(found) else None


def _largest(first: np.ndarray, second: np.ndarray) -> float | None:
    if first.shape != second.shape or not np.isfinite([first, second]).all():
        return None
    return float(np.linalg.norm(first - second, axis=-1).max(initial=0.0))


def _positions(episode: Episode, rows: int) -> np.ndarray:
    """Returns the points of the first rows in the world frame, (rows, points, 3) float64."""
    names = [name for name in _KEYPOINTS if name in episode.observations]
    X_WE, *keypoints = (
        episode.observations[name][:rows].astype(np.float64) for name in (_POSE, *names)
    )
    R_WE, p_WE = X_WE[..., :3], X_WE[..., None, :, 3]
    # A fourth entry of a keypoint is a mask; masked ones are zero, the origin of E.
    p_EQ = np.concatenate([np.zeros_like(p_WE), *(each[..., :3] for each in keypoints)], axis=-2)
    with np.errstate(invalid="ignore"):  # what is not finite stays so
        # By columns: einsum and BLAS may round the same numbers differently by their alignment.
        return p_WE + sum(p_EQ[..., j, None] * R_WE[:, None, :, j] for j in range(3))
