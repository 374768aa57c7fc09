"""Poses as a task file randomizes them."""

import itertools
from collections.abc import Iterator

import numpy as np
from pydrake.math import RigidTransform, RollPitchYaw

from fleet_tools.config.distributions import bounds
from fleet_tools.config.randomization import RandomPose
from fleet_tools.config.tasks import TaskConfig


def camera_positions(task: TaskConfig, X_WE: RigidTransform) -> np.ndarray:
    """Returns where a task's cameras are, in the middle of what it randomizes.

    Args:
        task: The task of an environment.
        X_WE: Pose of the end effector.

    Returns:
        (k, 3), in W, m.
    """
    positions = np.zeros((len(task.cameras), 3))
    for k, (name, camera) in enumerate(task.cameras.items()):
        drawn = task.randomization.cameras[name]
        assert isinstance(drawn, RandomPose)  # the task is an environment's
        p_FC = np.mean([bounds(each) for each in drawn.translation_m], axis=1)
        positions[k] = X_WE @ p_FC if camera.frame == "end_effector" else p_FC
    return positions


class Prior:
    """The pose that a task file randomizes; its parameters are the entries that vary.

    Args:
        drawn: The distribution, of x, y, z (m), roll, pitch and yaw.

    Attributes:
        low, high: (n,), bounds of the parameters, m or rad.
    """

    def __init__(self, drawn: RandomPose) -> None:
        entries = np.array([bounds(each) for each in (*drawn.translation_m, *drawn.rpy_deg)])
        entries[3:] = np.radians(entries[3:])
        self._varied = np.flatnonzero(entries[:, 1] > entries[:, 0])
        self._middle = entries.mean(axis=1)
        self.low, self.high = entries[self._varied].T

    def pose(self, x: np.ndarray) -> np.ndarray:
        """Returns the pose (4, 4) with the parameters x."""
        entries = self._middle.copy()
        entries[self._varied] = x
        return RigidTransform(RollPitchYaw(entries[3:]), entries[:3]).GetAsMatrix4()

    def starts(self, near: np.ndarray, steps: np.ndarray) -> Iterator[np.ndarray]:
        """Yields parameters that are spread over the prior, from the middle outwards.

        Args:
            near: (3,), where positions start, m; NaN for the middle of the prior.
            steps: (6,), largest distance between neighbours, m or rad.
        """
        grid = []
        for k, low, high in zip(self._varied, self.low, self.high, strict=True):
            middle = (low + high) / 2 if k >= 3 or np.isnan(near[k]) else near[k]
            count = int(np.ceil((high - low) / steps[k])) | 1 if np.isfinite(steps[k]) else 1
            spread = (np.arange(count) - count // 2) * (high - low) / count
            grid.append(middle + spread[np.argsort(np.abs(spread), kind="stable")])
        yield from map(np.array, sorted(itertools.product(*grid), key=self._from_middle))

    def offsets(self, of_entry: np.ndarray) -> np.ndarray:
        """Returns the steps of one parameter at a time, (k, n), in either direction.

        Args:
            of_entry: (6, j), sizes of the steps of each entry of the pose, m or rad.
        """
        sizes = of_entry[self._varied]
        steps = np.concatenate([sizes, -sizes], axis=1)
        return np.concatenate(
            [np.outer(column, unit) for column, unit in zip(steps, np.eye(len(steps)), strict=True)]
        )

    def _from_middle(self, x: tuple[float, ...]) -> float:
        """Returns the distance to the middle, relative to what is possible."""
        return float(
            np.abs((np.array(x) - (self.low + self.high) / 2) / (self.high - self.low)).sum()
        )
