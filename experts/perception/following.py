"""Following of an object in clouds, from where it was found on."""

from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from fleet_tools.experts.perception.freedom import Estimate, Search, by_motion, find
from fleet_tools.experts.perception.registration import COARSE, FINE, MIN_POINTS, TRACK, Schedule

JOINT_STARTS = 5
"""Number of positions from which a joint is looked for."""
JOINT_RANGE = np.pi / 2
"""Largest motion of a joint that is looked for, m or rad."""
APART_M = 5e-4
APART_GROWTH = 1.5
"""Residual, m beyond so many times the beginning's, from which pieces have moved apart."""


@dataclass(frozen=True, eq=False)
class Follower:
    """What moves with an object.

    Attributes:
        first: The object where the episode began.
        residual_m: Distance from its surface that 95% of the cloud's points kept there, m.
        fixed: Whether it is fixed to the world, so that it only moves on the table.
    """

    first: Estimate
    residual_m: float
    fixed: bool

    @classmethod
    def beginning(cls, first: Estimate, cloud_W: np.ndarray, fixed: bool) -> "Follower":
        """Begins to follow an object that was found in a cloud."""
        freedom = by_motion(first.state, apart=False, on_table=True)
        stays = freedom.follow(cloud_W, np.zeros(len(freedom.low)), Schedule(TRACK.points, ()))
        return cls(first, stays.residual_m, fixed)

    def follow(self, cloud_W: np.ndarray, last: Estimate, acted_on: bool) -> Estimate:
        """Finds the object near where it was.

        Args:
            cloud_W: (n, 3), points of its surface in W, m.
            last: Where it was.
            acted_on: Whether the tool has acted on it. If not, it moves as a whole on the table,
                unless the cloud shows otherwise.
        """
        if len(cloud_W) < MIN_POINTS:
            return last
        if acted_on:
            return self._follow(cloud_W, last, apart=True)
        as_one = self._follow(cloud_W, last, apart=False)
        if as_one.residual_m <= APART_GROWTH * self.residual_m + APART_M:
            return as_one
        in_pieces = self._follow(cloud_W, as_one, apart=True)
        return min(as_one, in_pieces, key=attrgetter("residual_m"))

    def find_again(self, cloud_W: np.ndarray, last: Estimate) -> Estimate:
        """Finds the object after the tool has acted on it: where it was last, or at first.

        Args:
            cloud_W: (n, 3), points of its surface in W, m.
            last: Where it was.
        """
        if len(cloud_W) < MIN_POINTS:
            return last
        found = [self._find_near(cloud_W, near) for near in (last, self.first)]
        return min(found, key=attrgetter("residual_m"))

    def _follow(self, cloud_W: np.ndarray, last: Estimate, apart: bool) -> Estimate:
        freedom = by_motion(last.state, apart=apart, on_table=self.fixed or not apart)
        return freedom.follow(cloud_W, np.zeros(len(freedom.low)), TRACK)

    def _find_near(self, cloud_W: np.ndarray, candidate: Estimate) -> Estimate:
        freedom = by_motion(candidate.state, apart=True, on_table=self.fixed)
        size, joints = len(freedom.low), len(candidate.state.joints)
        starts = [np.zeros(size)]
        for offset in np.linspace(-JOINT_RANGE, JOINT_RANGE, JOINT_STARTS) if joints else ():
            starts.append(np.zeros(size))
            starts[-1][-joints:] = offset
        return find(cloud_W, [Search(freedom, starts, np.zeros((0, size)))], COARSE, FINE)
