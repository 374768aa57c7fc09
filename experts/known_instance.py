"""Poses of a tool and an object whose models are known, from point clouds and the task's priors."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from fleet_tools.config.tasks import TaskConfig
from fleet_tools.experts.freedom import Estimate, Prior, by_motion, by_prior
from fleet_tools.experts.registration import Schedule
from fleet_tools.experts.shapes import Shape
from fleet_tools.sim.catalog import Kind, load_model
from fleet_tools.sim.task_models import find_task_model

COARSE = Schedule(150, (0.03, 0.02, 0.01, 0.005, 0.002), fits_m=1e-3)
FINE = Schedule(800, (0.005, *[0.002] * 9), fits_m=3e-5, starts=4)
TRACK = Schedule(300, (0.02, 0.01, 0.005, 0.002), fits_m=3e-5)
"""How accurately to register: from each start, from the best of them, and from the last pose."""

TOOL_STEPS = np.array([0.02, 0.02, 0.02, *np.radians([4, 4, 4])])
OBJECT_STEPS = np.array([np.inf, np.inf, np.inf, *np.radians([15, 15, 15])])
"""Largest distances between neighbouring starts, of positions (m) and of angles (rad)."""

OFFSETS = np.outer([0.001, 0.001, 0.001, *np.radians([1, 1, 1])], np.arange(1, 13))
"""(6, k), steps away from the best fit, where none is good: of positions (m) and angles (rad)."""
JOINT_STARTS = 5
"""Number of positions from which a joint is looked for."""
JOINT_RANGE = np.pi / 2
"""Largest motion of a joint that is looked for, m or rad."""
APART_M = 5e-4
"""Residual from which the pieces of an object have moved apart, m."""
MIN_POINTS = 30
"""Smallest number of points that say where something is."""


class KnownInstance:
    """A tool and an object of known shape.

    Args:
        task: The task, whose file says where both can be at the start.
        tool: Name or path of the tool.
        object: Name or path of the object.

    Raises:
        ConfigError, UnknownNameError: There are no such models.
    """

    def __init__(self, task: TaskConfig, tool: str, object: str) -> None:
        held = find_task_model(task, "tool", tool)
        laid = find_task_model(task, "object", object)
        self._X_GT = held.labels.grasp.to_transform().inverse().GetAsMatrix4()
        self._fixed = task.object_mount == "fixed"
        self._tool = _shape(held.file.parent, "tool", True)
        self._object = _shape(laid.file.parent, "object", self._fixed)
        self._tool_prior = Prior(task.randomization.tool_in_hand)
        self._object_prior = Prior(task.randomization.object_pose)

    @property
    def main(self) -> int:
        """The piece of the object to which the frame of its model belongs."""
        return self._object.main

    def find_tool(self, cloud_E: np.ndarray) -> Estimate:
        """Finds the tool in the hand.

        Args:
            cloud_E: (n, 3), points of its surface in E, m; n > 0.
        """
        starts = self._tool_prior.starts(np.full(3, np.nan), TOOL_STEPS)
        freedom = by_prior(self._tool, self._tool_prior, self._X_GT)
        return freedom.search(cloud_E, starts, self._tool_prior.offsets(OFFSETS), COARSE, FINE)

    def find_object(self, cloud_W: np.ndarray) -> Estimate:
        """Finds the object where an episode begins.

        Args:
            cloud_W: (n, 3), points of its surface in W, m; n > 0.
        """
        starts = self._object_prior.starts(cloud_W.mean(axis=0), OBJECT_STEPS)
        freedom = by_prior(self._object, self._object_prior, np.eye(4))
        return freedom.search(cloud_W, starts, self._object_prior.offsets(OFFSETS), COARSE, FINE)

    def follow_object(self, cloud_W: np.ndarray, last: Estimate, acted_on: bool) -> Estimate:
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
        if as_one.residual_m <= APART_M:
            return as_one
        return min(as_one, self._follow(cloud_W, as_one, apart=True), key=_residual)

    def find_object_again(self, cloud_W: np.ndarray, *candidates: Estimate) -> Estimate:
        """Finds the object after the tool has acted on it.

        Args:
            cloud_W: (n, 3), points of its surface in W, m.
            candidates: Where it may be, at least one, the likeliest first.
        """
        if len(cloud_W) < MIN_POINTS:
            return candidates[0]
        found = [self._find_near(cloud_W, candidate) for candidate in candidates]
        return min(found, key=_residual)

    def _follow(self, cloud_W: np.ndarray, last: Estimate, apart: bool) -> Estimate:
        freedom = by_motion(self._object, last, apart=apart, on_table=self._fixed or not apart)
        return freedom.follow(cloud_W, np.zeros(len(freedom.low)), TRACK)

    def _find_near(self, cloud_W: np.ndarray, candidate: Estimate) -> Estimate:
        freedom = by_motion(self._object, candidate, apart=True, on_table=self._fixed)
        joints = len(self._object.rest)
        starts = [np.zeros(len(freedom.low))]
        for offset in np.linspace(-JOINT_RANGE, JOINT_RANGE, JOINT_STARTS) if joints else ():
            starts.append(np.zeros(len(freedom.low)))
            starts[-1][-joints:] = offset
        return freedom.search(cloud_W, starts, np.zeros((0, len(starts[0]))), COARSE, FINE)


def _residual(found: Estimate) -> float:
    return found.residual_m


@lru_cache(maxsize=64)
def _shape(folder: Path, kind: Kind, fixed: bool) -> Shape:
    return Shape(load_model(folder, kind), fixed)
