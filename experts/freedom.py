"""What is unknown of a model's pose and size: parameters, their bounds, and what they stand for."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.transform import Rotation

from fleet_tools.experts.loose import Loose
from fleet_tools.experts.priors import Prior
from fleet_tools.experts.registration import Fit, Schedule, Trial, best
from fleet_tools.experts.shapes import Shape

SCALE_SPREAD = 0.15
"""Standard deviation of the logarithms of scales, among the models of a family."""
SCALE_LIMIT = 0.5
"""Largest absolute logarithm of a scale."""


@dataclass(frozen=True, eq=False)
class State:
    """A shape in a pose.

    Attributes:
        shape: The shape.
        X_P: (pieces, 4, 4), poses of its pieces, see `fleet_tools.experts.shapes`.
        joints: (joints,), positions of its joints, m or rad.
    """

    shape: Shape
    X_P: np.ndarray
    joints: np.ndarray


@dataclass(frozen=True, eq=False)
class Estimate:
    """What was found.

    Attributes:
        state: The shape and its pose.
        parameters: (n,), what was varied to find it.
        keypoints: Its labelled points, (3,) each, m.
        residual_m: See `fleet_tools.experts.registration.Registration`.
    """

    state: State
    parameters: np.ndarray
    keypoints: dict[str, np.ndarray]
    residual_m: float

    @property
    def X_PO(self) -> np.ndarray:
        """Pose (4, 4) of the piece to which the model's frame belongs."""
        return self.state.X_P[self.state.shape.main]


@dataclass(frozen=True, eq=False)
class Freedom:
    """What is unknown of a shape.

    Attributes:
        shape: The shape, whose visible links do not change.
        state: What the parameters stand for.
        low, high: (n,), bounds of the parameters.
        loose: Of a shape that may be scaled, the terms of its fit to a cloud (m, 3), m.
    """

    shape: Shape
    state: Callable[[np.ndarray], State]
    low: np.ndarray
    high: np.ndarray
    loose: Callable[[np.ndarray], Loose] | None = None

    def follow(self, cloud: np.ndarray, start: np.ndarray, schedule: Schedule) -> Estimate:
        """Finds the shape near one start."""
        points = schedule.points_of(cloud)
        found = self.fit(cloud).register(points, start, schedule.scales_m)
        return self.estimate(found.parameters, found.residual_m)

    def fit(self, cloud: np.ndarray) -> Fit:
        """Returns what is fitted to a cloud, (m, 3), m."""

        def place(x: np.ndarray) -> np.ndarray:
            state = self.state(x)
            return state.shape.place(state.X_P, state.joints)

        loose = None if self.loose is None else self.loose(cloud)
        return Fit(self.shape.surfaces, place, self.low, self.high, loose)

    def estimate(self, x: np.ndarray, residual_m: float) -> Estimate:
        """Returns what the parameters stand for."""
        state = self.state(x)
        keypoints = state.shape.keypoints(state.X_P, state.joints)
        return Estimate(state, x, keypoints, residual_m)


@dataclass(frozen=True, eq=False)
class Search:
    """Something unknown, and where to look for it; see `fleet_tools.experts.registration.Trial`."""

    freedom: Freedom
    starts: Iterable[np.ndarray]
    offsets: np.ndarray


def find(
    cloud: np.ndarray, searches: Sequence[Search], coarse: Schedule, fine: Schedule
) -> Estimate:
    """Finds the best of several shapes, see `fleet_tools.experts.registration.best`."""
    trials = [Trial(each.freedom.fit(cloud), each.starts, each.offsets) for each in searches]
    k, found = best(cloud, trials, coarse, fine)
    return searches[k].freedom.estimate(found.parameters, found.residual_m)


def by_prior(shape: Shape, prior: Prior, X_GP: np.ndarray) -> Freedom:
    """Returns what is unknown at the start of an episode.

    Args:
        shape: The shape.
        prior: Pose of a frame G.
        X_GP: (4, 4), pose of all pieces in this frame.
    """

    def state(x: np.ndarray) -> State:
        X_P = np.repeat((prior.pose(x) @ X_GP)[None], shape.pieces, axis=0)
        return State(shape, X_P, shape.rest)

    return Freedom(shape, state, prior.low, prior.high)


def by_prior_and_size(shape: Shape, prior: Prior, X_GP: np.ndarray, cameras: np.ndarray) -> Freedom:
    """Returns what is unknown at the start of an episode if the scales of the links are, too.

    The logarithms of these are the last parameters.

    Args:
        shape: The shape.
        prior: Pose of a frame G.
        X_GP: (4, 4), pose of all pieces in this frame.
        cameras: (k, 3), where the shape may be seen from, m.
    """
    n, links = len(prior.low), len(shape.surfaces)
    of_pose = by_prior(shape, prior, X_GP)

    def state(x: np.ndarray) -> State:
        scaled = shape.scaled(np.exp(x[n:]).reshape(links, 3))
        return replace(of_pose.state(x[:n]), shape=scaled)

    def loose(cloud: np.ndarray) -> Loose:
        return Loose.of(shape.surfaces, spread, cloud, cameras)

    limit = np.full(3 * links, SCALE_LIMIT)
    spread = np.concatenate([np.full(n, np.inf), np.full(3 * links, SCALE_SPREAD)])
    low, high = np.concatenate([prior.low, -limit]), np.concatenate([prior.high, limit])
    return Freedom(shape, state, low, high, loose)


def by_motion(last: State, apart: bool, on_table: bool) -> Freedom:
    """Returns what is unknown a moment later; parameters are 0 where nothing has moved.

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

    def state(x: np.ndarray) -> State:
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
        return State(shape, X_P, positions)

    free = np.full(split, np.inf)
    low = np.concatenate([-free, (shape.low - last.joints)[:joints]])
    high = np.concatenate([free, (shape.high - last.joints)[:joints]])
    return Freedom(shape, state, low, high)
