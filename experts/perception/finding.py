"""A tool and an object, found in the first point clouds of an episode: which they are, and where.

Candidates are models of which one is there, or models of the same families. In the first case it
is the one with the smallest residual. In the second, if none fits as it is, the candidates are
scaled, link by link, and the part of the tool that is to act is registered by itself: a wrench is
where its jaw is, whatever the handle looks like.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path

import numpy as np
from pydrake.math import RigidTransform
from scipy.spatial.transform import Rotation

from fleet_tools.config.tasks import TaskConfig
from fleet_tools.experts.perception.freedom import (
    Estimate,
    Prior,
    Search,
    by_prior,
    by_prior_and_size,
    camera_positions,
    find,
)
from fleet_tools.experts.perception.registration import (
    COARSE,
    FINE,
    MIN_POINTS,
    Fit,
    ScaleTerms,
    Schedule,
    StartedFit,
    best,
)
from fleet_tools.experts.perception.shapes import Shape, TriangleSurface
from fleet_tools.sim.catalog import Kind, find_task_model, load_model
from fleet_tools.sim.splits import model_pairs

PART_COARSE = Schedule(100, (0.01, 0.005, 0.005, 0.003))
PART_FINE = Schedule(400, (0.003,) * 4 + (0.002,) * 8, starts=2)
"""Accuracy of registration from each start, and from the best of them."""

PART_SPREAD = np.repeat([np.inf, np.inf, 0.1], 3)
"""Expected size of motions (m), turns (rad) and logarithms of scales, relative to the whole."""
PART_LIMIT = np.repeat([0.03, 0.6, 0.3], 3)
"""Largest motions, turns and logarithms of scales."""
PART_START = np.array([0.01, 0.01, 0.01, 0.25, 0.25, 0.25, 0, 0, 0])
"""Steps in either direction from where the whole has the part, m and rad."""
SURFACE_MARGIN_M = 0.02
CLOUD_MARGIN_M = 0.008
"""Distance from the part up to which surface and cloud belong to it."""


@dataclass(frozen=True)
class Region:
    """What is within a distance of the segment through keypoints.

    Attributes:
        keypoints: Names, one or two.
        within_m: Distance, m.
    """

    keypoints: tuple[str, ...]
    within_m: float

    def distances(self, points: np.ndarray, keypoints: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns how far points (..., 3) are outside of it, (...), m; negative within it."""
        a, b = keypoints[self.keypoints[0]], keypoints[self.keypoints[-1]]
        along = (points - a) @ (b - a) / max((b - a) @ (b - a), 1e-12)
        nearest = a + np.clip(along, 0, 1)[..., None] * (b - a)
        return np.linalg.norm(points - nearest, axis=-1) - self.within_m


def find_part(
    cloud: np.ndarray, whole: Estimate, regions: Sequence[Region], cameras: np.ndarray
) -> Estimate:
    """Finds the part of a tool that acts, near to where the tool as a whole has it.

    Args:
        cloud: (n, 3), points of the tool, m.
        whole: The tool as a whole.
        regions: The part, at least one region.
        cameras: (k, 3), where the cloud may have been seen from, m.

    Returns:
        The tool with the keypoints of the part where the part is, and the residual there.
    """

    def outside(points: np.ndarray, keypoints: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.min([each.distances(points, keypoints) for each in regions], axis=0)

    triangles = _triangles(whole)
    probes = np.concatenate([triangles, triangles.mean(axis=1, keepdims=True)], axis=1)
    near = outside(probes, whole.keypoints).min(axis=1) <= SURFACE_MARGIN_M
    seen = cloud[outside(cloud, whole.keypoints) <= CLOUD_MARGIN_M]
    if len(seen) < MIN_POINTS or not near.any():
        return replace(whole, residual_m=np.inf)
    middle = np.mean([whole.keypoints[name] for each in regions for name in each.keypoints], axis=0)

    R = whole.X_PO[:3, :3]

    def motion(x: np.ndarray) -> np.ndarray:
        # Scales are along the tool's own axes, so that what is perpendicular stays so.
        A = np.eye(4)
        A[:3, :3] = Rotation.from_rotvec(x[3:6]).as_matrix() @ (R * np.exp(x[6:])) @ R.T
        A[:3, 3] = middle + x[:3] - A[:3, :3] @ middle
        return A

    surface = TriangleSurface(triangles[near])
    scale_terms = ScaleTerms.of([surface], PART_SPREAD, cloud, cameras)
    fit = Fit([surface], lambda x: motion(x)[None], -PART_LIMIT, PART_LIMIT, scale_terms)
    steps = [sign * step for step, sign in itertools.product(np.diag(PART_START)[:6], (1, -1))]
    starts = [np.zeros(9), *steps]
    _, found = best(seen, [StartedFit(fit, starts, np.zeros((0, 9)))], PART_COARSE, PART_FINE)
    A = motion(found.parameters)
    keypoints = {
        name: A[:3, :3] @ p + A[:3, 3] if outside(p, whole.keypoints) <= SURFACE_MARGIN_M else p
        for name, p in whole.keypoints.items()
    }
    seen = cloud[outside(cloud, keypoints) <= 0]
    if len(seen) < MIN_POINTS:
        return replace(whole, residual_m=np.inf)
    residual_m = fit.judged(seen, found.parameters).residual_m
    return replace(whole, keypoints=keypoints, residual_m=residual_m)


def _triangles(whole: Estimate) -> np.ndarray:
    """Returns the triangles of all links in the cloud's frame, (n, 3, 3), m."""
    shape = whole.state.shape
    maps = shape.place(whole.state.X_P, whole.state.joints)
    return np.concatenate(
        [
            surface.triangles @ A[:3, :3].T + A[:3, 3]
            for surface, A in zip(shape.surfaces, maps, strict=True)
        ]
    )


NO_STEP = Schedule(COARSE.points, ())
SIZED_COARSE = Schedule(150, (0.03, 0.02, 0.02, 0.01, 0.01, 0.005))
SIZED_FINE = Schedule(400, (0.01, *[0.005] * 7), starts=1)
"""Accuracy of registration of models that are scaled."""
LIKELIEST = 3
"""Number of candidates that may fit as they are."""
SIMILAR_M = 3e-3
"""Residual after rough registration up to which a candidate may be the model that is there, m."""
SAME_M = 1e-4
"""Residual up to which a candidate is the model that is there, m."""

TOOL_STEPS = np.array([0.02, 0.02, 0.02, *np.radians([20, 20, 20])])
OBJECT_STEPS = np.array([np.inf, np.inf, np.inf, *np.radians([15, 15, 15])])
"""Largest distances between neighbouring starts, of positions (m) and of angles (rad)."""

OFFSETS = np.outer([0.001, 0.001, 0.001, *np.radians([1, 1, 1])], np.arange(1, 13))
"""(6, k), steps away from the best fit, where none is good: of positions (m) and angles (rad)."""


@dataclass(frozen=True)
class Candidates:
    """Models that may be there.

    Attributes:
        tools, objects: Names or paths, at least one each.
        known: Whether one of them is there; else others of their families may be.
    """

    tools: tuple[str, ...]
    objects: tuple[str, ...]
    known: bool

    @classmethod
    def of_training(cls, task: TaskConfig) -> "Candidates":
        """Returns the models of a task's training scenes, of whose families others may be there."""
        tools, objects = zip(*model_pairs(task, "train"), strict=True)
        return cls(tuple(sorted(set(tools))), tuple(sorted(set(objects))), known=False)


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A shape and where it may be: its pose X_GP in a frame whose pose the task file draws."""

    shape: Shape
    prior: Prior
    X_GP: np.ndarray
    near: np.ndarray
    steps: np.ndarray
    cameras: np.ndarray

    def search(self) -> Search:
        """Returns where to look for it as it is."""
        return self._search(list(self.prior.starts(self.near, self.steps)))

    def search_near(self, rough: Estimate) -> Search:
        """Returns where to look for it as it is, near to where it is roughly."""
        return self._search([rough.parameters])

    def search_sized(self, rough: Estimate) -> Search:
        """Returns where to look for it with other scales, near to where it is roughly."""
        freedom = by_prior_and_size(self.shape, self.prior, self.X_GP, self.cameras)
        start = np.pad(rough.parameters, (0, len(freedom.low) - len(rough.parameters)))
        return Search(freedom, [start], np.zeros((0, len(start))))

    def _search(self, starts: list[np.ndarray]) -> Search:
        freedom = by_prior(self.shape, self.prior, self.X_GP)
        return Search(freedom, starts, self.prior.offsets(OFFSETS))


class Finder:
    """Finds tool and object where an episode begins.

    Args:
        task: The task, whose file says where both can be, and which part of the tool acts.
        candidates: Which they can be.

    Raises:
        ConfigError, UnknownNameError: There are no such models.
    """

    def __init__(self, task: TaskConfig, candidates: Candidates) -> None:
        self._task, self._known = task, candidates.known
        self._tools = [find_task_model(task, "tool", name) for name in candidates.tools]
        self._objects = [find_task_model(task, "object", name) for name in candidates.objects]
        self._fixed = task.object_mount == "fixed"
        self._tool_prior = Prior(task.randomization.tool_in_hand)
        self._object_prior = Prior(task.randomization.object_pose)
        self._regions = [
            Region(tuple(part.keypoints), part.within_m) for part in task.tool_parts.values()
        ]

    def find_tool(self, cloud_E: np.ndarray, X_WE: RigidTransform) -> Estimate:
        """Finds the tool in the hand.

        Args:
            cloud_E: (n, 3), points of its surface in E, m; n > 0.
            X_WE: Pose of the end effector.
        """
        cameras_E = X_WE.inverse().multiply(camera_positions(self._task, X_WE).T).T
        candidates = [
            _Candidate(
                _shape(model.file.parent, "tool", True),
                self._tool_prior,
                model.labels.grasp.to_transform().inverse().GetAsMatrix4(),
                np.full(3, np.nan),
                TOOL_STEPS,
                cameras_E,
            )
            for model in self._tools
        ]
        return self._find(cloud_E, candidates, self._regions)

    def find_object(self, cloud_W: np.ndarray, X_WE: RigidTransform) -> Estimate:
        """Finds the object where an episode begins.

        Args:
            cloud_W: (n, 3), points of its surface in W, m; n > 0.
            X_WE: Pose of the end effector.
        """
        cameras_W = camera_positions(self._task, X_WE)
        near = cloud_W.mean(axis=0)
        candidates = [
            _Candidate(
                _shape(model.file.parent, "object", self._fixed),
                self._object_prior,
                np.eye(4),
                near,
                OBJECT_STEPS,
                cameras_W,
            )
            for model in self._objects
        ]
        return self._find(cloud_W, candidates, [])

    def _find(
        self, cloud: np.ndarray, candidates: list[_Candidate], regions: list[Region]
    ) -> Estimate:
        if self._known:
            return find(cloud, [each.search() for each in candidates], COARSE, FINE)
        searches = [replace(each.search(), offsets=np.zeros((0, 1))) for each in candidates]
        roughly = [find(cloud, [each], COARSE, NO_STEP) for each in searches]
        pairs = sorted(zip(candidates, roughly, strict=True), key=lambda pair: pair[1].residual_m)
        for candidate, rough in pairs[:LIKELIEST]:
            if rough.residual_m <= SIMILAR_M:
                found = find(cloud, [candidate.search_near(rough)], COARSE, FINE)
                if found.residual_m <= SAME_M:
                    return found
        sized = [
            find(cloud, [candidate.search_sized(rough)], SIZED_COARSE, SIZED_FINE)
            for candidate, rough in pairs
        ]
        if regions:
            cameras = candidates[0].cameras
            sized = [find_part(cloud, each, regions, cameras) for each in sized]
        return min(sized, key=attrgetter("residual_m"))


@lru_cache(maxsize=64)
def _shape(folder: Path, kind: Kind, fixed: bool) -> Shape:
    return Shape(load_model(folder, kind), fixed)
