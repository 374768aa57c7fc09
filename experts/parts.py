"""The part of a tool that acts, registered by itself.

Tools of a family differ in handles and in how these carry the part that acts; this part is alike.
So it may move and be scaled apart from the rest.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.transform import Rotation

from fleet_tools.experts.closest_points import Surface
from fleet_tools.experts.freedom import Estimate
from fleet_tools.experts.loose import Loose
from fleet_tools.experts.registration import MIN_POINTS, Fit, Schedule, Trial, best

COARSE = Schedule(100, (0.01, 0.005, 0.005, 0.003))
FINE = Schedule(400, (0.003,) * 4 + (0.002,) * 8, starts=2)
"""How accurately to register: from each start, and from the best of them."""

SPREAD = np.repeat([np.inf, np.inf, 0.1], 3)
"""Expected size of motions (m), turns (rad) and logarithms of scales, relative to the whole."""
LIMIT = np.repeat([0.03, 0.6, 0.3], 3)
"""Largest motions, turns and logarithms of scales."""
START = np.array([0.01, 0.01, 0.01, 0.25, 0.25, 0.25, 0, 0, 0])
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

    surface = Surface(triangles[near])
    loose = Loose.of([surface], SPREAD, cloud, cameras)
    fit = Fit([surface], lambda x: motion(x)[None], -LIMIT, LIMIT, loose)
    steps = [sign * step for step, sign in itertools.product(np.diag(START)[:6], (1, -1))]
    starts = [np.zeros(9), *steps]
    _, found = best(seen, [Trial(fit, starts, np.zeros((0, 9)))], COARSE, FINE)
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
