"""What is unknown of a model's pose: parameters, their bounds, and what they stand for."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from pydrake.math import RigidTransform, RollPitchYaw
from scipy.spatial.transform import Rotation

from fleet_tools.config.distributions import bounds
from fleet_tools.config.randomization import RandomPose
from fleet_tools.experts.registration import Fit, Registration, Schedule
from fleet_tools.experts.shapes import Shape


@dataclass(frozen=True, eq=False)
class Estimate:
    """Where a model is.

    Attributes:
        X_P: (pieces, 4, 4), poses of its pieces, see `fleet_tools.experts.shapes`.
        joints: (joints,), positions of its joints, m or rad.
        keypoints: Its labelled points, (3,) each, m.
        residual_m: See `fleet_tools.experts.registration.Registration`.
    """

    X_P: np.ndarray
    joints: np.ndarray
    keypoints: dict[str, np.ndarray]
    residual_m: float


@dataclass(frozen=True, eq=False)
class Freedom:
    """What is unknown of a shape's pose.

    Attributes:
        shape: The shape.
        poses: Poses of its pieces and positions of its joints, by the parameters.
        low, high: (n,), bounds of the parameters.
    """

    shape: Shape
    poses: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    low: np.ndarray
    high: np.ndarray

    def search(
        self,
        cloud: np.ndarray,
        starts: Iterable[np.ndarray],
        offsets: np.ndarray,
        coarse: Schedule,
        fine: Schedule,
    ) -> Estimate:
        """Finds the shape from several starts, see `Fit.best`."""
        return self._estimate(self._fit.best(cloud, starts, offsets, coarse, fine))

    def follow(self, cloud: np.ndarray, start: np.ndarray, schedule: Schedule) -> Estimate:
        """Finds the shape near one start."""
        points = schedule.points_of(cloud)
        return self._estimate(self._fit.register(points, start, schedule.scales_m))

    @property
    def _fit(self) -> Fit:
        def place(x: np.ndarray) -> np.ndarray:
            return self.shape.place(*self.poses(x))

        return Fit(self.shape.surfaces, place, self.low, self.high)

    def _estimate(self, found: Registration) -> Estimate:
        X_P, joints = self.poses(found.parameters)
        return Estimate(X_P, joints, self.shape.keypoints(X_P, joints), found.residual_m)


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


def by_prior(shape: Shape, prior: Prior, X_GP: np.ndarray) -> Freedom:
    """Returns what is unknown at the start of an episode.

    Args:
        shape: The shape.
        prior: Pose of a frame G.
        X_GP: (4, 4), pose of all pieces in this frame.
    """

    def poses(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.repeat((prior.pose(x) @ X_GP)[None], shape.pieces, axis=0), shape.rest

    return Freedom(shape, poses, prior.low, prior.high)


def by_motion(shape: Shape, last: Estimate, apart: bool, on_table: bool) -> Freedom:
    """Returns what is unknown a moment later; parameters are 0 where nothing has moved.

    Args:
        shape: The shape.
        last: Where it was.
        apart: Whether pieces and joints may have moved each by itself, or all as one.
        on_table: Whether the pieces stay upright, and on their height.
    """
    groups = np.arange(shape.pieces) if apart else np.zeros(shape.pieces, int)
    size = 3 if on_table else 6
    joints = len(shape.rest) if apart else 0
    split = size * (groups.max() + 1)

    def poses(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        X_P = last.X_P.copy()
        for k, group in enumerate(groups):
            motion = x[size * group : size * (group + 1)]
            turn, shift = np.zeros(3), np.zeros(3)
            if on_table:
                shift[:2], turn[2] = motion[:2], motion[2]
            else:
                shift, turn = motion[:3], motion[3:]
            pivot = last.X_P[group, :3, 3]
            R = Rotation.from_rotvec(turn).as_matrix()
            X_P[k, :3, :3] = R @ last.X_P[k, :3, :3]
            X_P[k, :3, 3] = pivot + shift + R @ (last.X_P[k, :3, 3] - pivot)
        positions = last.joints.copy()
        positions[:joints] += x[split:]
        return X_P, positions

    free = np.full(split, np.inf)
    low = np.concatenate([-free, (shape.low - last.joints)[:joints]])
    high = np.concatenate([free, (shape.high - last.joints)[:joints]])
    return Freedom(shape, poses, low, high)
