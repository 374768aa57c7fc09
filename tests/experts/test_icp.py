"""Two registrations that share no code find the same poses of rigid models."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from fleet_tools.config.file_access import assets_root
from fleet_tools.experts.perception.registration import Fit
from fleet_tools.experts.perception.shapes import Shape, TriangleSurface, sample
from fleet_tools.sim.catalog import load_model

open3d = pytest.importorskip("open3d", exc_type=ImportError)

SCALES = (0.01, *[0.005] * 9)


SAMPLES = 50_000
"""Number of points that stand for the surface."""
REACH = 5.0
"""Largest distance between corresponding points, relative to the scale of a step."""
ITERATIONS = 30
"""Largest number of ICP's iterations at each scale."""


def register_by_icp(
    surface: TriangleSurface, cloud: np.ndarray, X_start: np.ndarray, scales_m: Iterable[float]
) -> tuple[np.ndarray, float]:
    """Returns the pose (4, 4) near a start at which a rigid surface fits a cloud, and the residual.

    Point-to-plane ICP (Chen and Medioni, "Object modelling by registration of multiple range
    images", 1992) with Huber's weights, from the cloud (m, 3) to samples of the surface.
    """
    icp = open3d.pipelines.registration
    source = open3d.geometry.PointCloud(open3d.utility.Vector3dVector(cloud))
    target = _target(surface)
    criteria = icp.ICPConvergenceCriteria(1e-9, 1e-9, ITERATIONS)
    X_BF = np.linalg.inv(X_start)
    for scale in scales_m:
        method = icp.TransformationEstimationPointToPlane(icp.HuberLoss(scale))
        X_BF = icp.registration_icp(
            source, target, REACH * scale, X_BF, method, criteria
        ).transformation
    in_surface = cloud @ X_BF[:3, :3].T + X_BF[:3, 3]
    gaps = np.linalg.norm(surface.closest(in_surface)[0] - in_surface, axis=1)
    X_FB = np.linalg.inv(X_BF)
    return X_FB, float(np.percentile(gaps, 95))


@lru_cache(maxsize=16)
def _target(surface: TriangleSurface) -> Any:
    points, triangles = sample(surface.triangles, SAMPLES)
    a, b, c = np.moveaxis(surface.triangles[triangles], 1, 0)
    normals = np.cross(b - a, c - a)
    cloud = open3d.geometry.PointCloud(open3d.utility.Vector3dVector(points))
    cloud.normals = open3d.utility.Vector3dVector(
        normals / np.linalg.norm(normals, axis=1, keepdims=True)
    )
    return cloud


def pose(x: np.ndarray) -> np.ndarray:
    X = np.eye(4)
    X[:3, :3], X[:3, 3] = Rotation.from_rotvec(x[3:]).as_matrix(), x[:3]
    return X


def surface(name: str) -> TriangleSurface:
    shape = Shape(load_model(assets_root().resolve() / Path(name), "tool"), fixed=True)
    links = zip(shape.surfaces, shape.place(np.eye(4)[None], shape.rest), strict=True)
    triangles = [link.triangles @ X[:3, :3].T + X[:3, 3] for link, X in links]
    return TriangleSurface(np.concatenate(triangles))


@pytest.mark.parametrize("noise_m", [0.0, 5e-4])
@pytest.mark.parametrize("name", ["tools/hammer/claw", "tools/wrench/open_end"])
def test_both_registrations_agree(name: str, noise_m: float) -> None:
    model = surface(name)
    generator = np.random.default_rng(0)
    truth = pose(np.array([0.5, -0.2, 0.1, 0.4, 1.0, -2.0]))
    points, _ = sample(model.triangles, 2000)
    cloud = points @ truth[:3, :3].T + truth[:3, 3] + generator.normal(0, noise_m, points.shape)
    start = truth @ pose(np.array([0.003, -0.002, 0.002, 0.04, -0.03, 0.02]))
    limits = np.full(6, np.inf)
    ours = Fit((model,), lambda x: (start @ pose(x))[None], -limits, limits)
    found = ours.register(cloud, np.zeros(6), SCALES)
    X_icp, residual_m = register_by_icp(model, cloud, start, (0.01, 0.005, 0.002))
    between = np.linalg.inv(start @ pose(found.parameters)) @ X_icp
    to_truth = np.linalg.inv(truth) @ X_icp
    for gap in (between, to_truth):
        assert np.linalg.norm(gap[:3, 3]) < 3e-4
        assert Rotation.from_matrix(gap[:3, :3]).magnitude() < 3e-3
    assert residual_m == pytest.approx(found.residual_m, abs=1e-4)
