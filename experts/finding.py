"""A tool and an object, found in the first point clouds of an episode: which they are, and where.

Candidates are models of which one is there, or models of the same families. In the first case it
is the one with the smallest residual. In the second, if none fits as it is, the candidates are
scaled, link by link, and the part of the tool that is to act is registered by itself: a wrench is
where its jaw is, whatever the handle looks like.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path

import numpy as np
from pydrake.math import RigidTransform

from fleet_tools.config.tasks import TaskConfig
from fleet_tools.experts.freedom import Estimate, Search, by_prior, by_prior_and_size, find
from fleet_tools.experts.parts import Region, find_part
from fleet_tools.experts.priors import Prior, camera_positions
from fleet_tools.experts.registration import COARSE, FINE, Schedule
from fleet_tools.experts.shapes import Shape
from fleet_tools.sim.catalog import Kind, load_model
from fleet_tools.sim.splits import model_pairs
from fleet_tools.sim.task_models import find_task_model

NO_STEP = Schedule(COARSE.points, ())
SIZED_COARSE = Schedule(150, (0.03, 0.02, 0.02, 0.01, 0.01, 0.005))
SIZED_FINE = Schedule(400, (0.01, *[0.005] * 7), starts=1)
"""How accurately to register models that are scaled."""
LIKELIEST = 3
"""Number of candidates that may fit as they are."""
SIMILAR_M = 3e-3
"""Residual after rough registration up to which a candidate may be the model that is there, m."""
SAME_M = 1e-4
"""Residual up to which a candidate is the model that is there, m."""

TOOL_STEPS = np.array([0.02, 0.02, 0.02, *np.radians([4, 4, 4])])
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
