"""Free parameters of a model's pose and size, their bounds and meanings."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydrake.math import RigidTransform, RollPitchYaw
from scipy.spatial.transform import Rotation

from fleet_tools.config.distributions import bounds
from fleet_tools.config.randomization import RandomPose
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.experts.perception.registration import Fit, ScaleTerms, Schedule, StartedFit, best
from fleet_tools.experts.perception.shapes import Shape


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


SCALE_SPREAD = 0.15
"""Standard deviation of the logarithms of scales, among the models of a family."""
SCALE_LIMIT = 0.5
"""Largest absolute logarithm of a scale."""


@dataclass(frozen=True, eq=False)
class ShapeState:
    """A shape in a pose.

    Attributes:
        shape: The shape.
        X_P: (pieces, 4, 4), poses of its pieces, see `fleet_tools.experts.perception.shapes`.
        joints: (joints,), positions of its joints, m or rad.
    """

    shape: Shape
    X_P: np.ndarray
    joints: np.ndarray


@dataclass(frozen=True, eq=False)
class Estimate:
    """Result of a registration.

    Attributes:
        state: The shape and its pose.
        parameters: (n,), what was varied to find it.
        keypoints: Its labelled points, (3,) each, m.
        residual_m: See `fleet_tools.experts.perception.registration.Registration`.
    """

    state: ShapeState
    parameters: np.ndarray
    keypoints: dict[str, np.ndarray]
    residual_m: float

    @property
    def X_PO(self) -> np.ndarray:
        """Pose (4, 4) of the piece to which the model's frame belongs."""
        return self.state.X_P[self.state.shape.main]


@dataclass(frozen=True, eq=False)
class Freedom:
    """Free parameters of a shape.

    Attributes:
        shape: The shape, whose visible links do not change.
        state: What the parameters stand for.
        low, high: (n,), bounds of the parameters.
        scale_terms: Of a shape that may be scaled, the terms of its fit to a cloud (m, 3), m.
    """

    shape: Shape
    state: Callable[[np.ndarray], ShapeState]
    low: np.ndarray
    high: np.ndarray
    scale_terms: Callable[[np.ndarray], ScaleTerms] | None = None

    def follow(self, cloud: np.ndarray, start: np.ndarray, schedule: Schedule) -> Estimate:
        """Finds the shape near one start."""
        points = schedule.points_of(cloud)
        found = self.fit(cloud).register(points, start, schedule.scales_m)
        return self.estimate(found.parameters, found.residual_m)

    def fit(self, cloud: np.ndarray) -> Fit:
        """Returns the fit of the shape to a cloud, (m, 3), m."""

        def place(x: np.ndarray) -> np.ndarray:
            state = self.state(x)
            return state.shape.place(state.X_P, state.joints)

        scale_terms = None if self.scale_terms is None else self.scale_terms(cloud)
        return Fit(self.shape.surfaces, place, self.low, self.high, scale_terms)

    def estimate(self, x: np.ndarray, residual_m: float) -> Estimate:
        """Returns the estimate for some parameters."""
        state = self.state(x)
        keypoints = state.shape.keypoints(state.X_P, state.joints)
        return Estimate(state, x, keypoints, residual_m)


@dataclass(frozen=True, eq=False)
class Search:
    """Something unknown, and where to look for it; see `registration.StartedFit`."""

    freedom: Freedom
    starts: Iterable[np.ndarray]
    offsets: np.ndarray


def find(
    cloud: np.ndarray, searches: Sequence[Search], coarse: Schedule, fine: Schedule
) -> Estimate:
    """Finds the best of several shapes, see `fleet_tools.experts.perception.registration.best`."""
    fits = [StartedFit(each.freedom.fit(cloud), each.starts, each.offsets) for each in searches]
    k, found = best(cloud, fits, coarse, fine)
    return searches[k].freedom.estimate(found.parameters, found.residual_m)


def by_prior(shape: Shape, prior: Prior, X_GP: np.ndarray) -> Freedom:
    """Returns the free parameters at the start of an episode.

    Args:
        shape: The shape.
        prior: Pose of a frame G.
        X_GP: (4, 4), pose of all pieces in this frame.
    """

    def state(x: np.ndarray) -> ShapeState:
        X_P = np.repeat((prior.pose(x) @ X_GP)[None], shape.pieces, axis=0)
        return ShapeState(shape, X_P, shape.rest)

    return Freedom(shape, state, prior.low, prior.high)


def by_prior_and_size(shape: Shape, prior: Prior, X_GP: np.ndarray, cameras: np.ndarray) -> Freedom:
    """Returns the free parameters at the start of an episode, with the scales of the links.

    The logarithms of these are the last parameters.

    Args:
        shape: The shape.
        prior: Pose of a frame G.
        X_GP: (4, 4), pose of all pieces in this frame.
        cameras: (k, 3), where the shape may be seen from, m.
    """
    n, links = len(prior.low), len(shape.surfaces)
    of_pose = by_prior(shape, prior, X_GP)

    def state(x: np.ndarray) -> ShapeState:
        scaled = shape.scaled(np.exp(x[n:]).reshape(links, 3))
        return replace(of_pose.state(x[:n]), shape=scaled)

    def scale_terms(cloud: np.ndarray) -> ScaleTerms:
        return ScaleTerms.of(shape.surfaces, spread, cloud, cameras)

    limit = np.full(3 * links, SCALE_LIMIT)
    spread = np.concatenate([np.full(n, np.inf), np.full(3 * links, SCALE_SPREAD)])
    low, high = np.concatenate([prior.low, -limit]), np.concatenate([prior.high, limit])
    return Freedom(shape, state, low, high, scale_terms)


def by_motion(last: ShapeState, apart: bool, on_table: bool) -> Freedom:
    """Returns the free parameters a moment later; they are 0 where nothing has moved.

    Args:
        last: What was known.
        apart: Whether pieces and joints may have moved each by itself, or all as one.
        on_table: Whether the pieces stay upright, and on their height.
    """
    shape = last.shape
    groups = np.arange(shape.pieces) if apart else np.zeros(shape.pieces, int)
    size = 3 if on_table else 6
    joints = len(shape.rest) if apart else 0
    split = size * (groups.max() + 1)

    def state(x: np.ndarray) -> ShapeState:
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
        return ShapeState(shape, X_P, positions)

    free = np.full(split, np.inf)
    low = np.concatenate([-free, (shape.low - last.joints)[:joints]])
    high = np.concatenate([free, (shape.high - last.joints)[:joints]])
    return Freedom(shape, state, low, high)
