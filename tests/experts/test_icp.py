"""Two registrations that share no code find the same poses of rigid models."""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from fleet_tools.config.file_access import assets_root
from fleet_tools.experts.closest_points import Surface, sample
from fleet_tools.experts.icp import register_by_icp
from fleet_tools.experts.registration import Fit
from fleet_tools.experts.shapes import Shape
from fleet_tools.sim.catalog import load_model

pytest.importorskip("open3d", exc_type=ImportError)

SCALES = (0.01, *[0.005] * 9)


def pose(x: np.ndarray) -> np.ndarray:
    X = np.eye(4)
    X[:3, :3], X[:3, 3] = Rotation.from_rotvec(x[3:]).as_matrix(), x[:3]
    return X


def surface(name: str) -> Surface:
    shape = Shape(load_model(assets_root().resolve() / Path(name), "tool"), fixed=True)
    links = zip(shape.surfaces, shape.place(np.eye(4)[None], shape.rest), strict=True)
    triangles = [link.triangles @ X[:3, :3].T + X[:3, 3] for link, X in links]
    return Surface(np.concatenate(triangles))


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
    X_icp, registration = register_by_icp(model, cloud, start, (0.01, 0.005, 0.002))
    between = np.linalg.inv(start @ pose(found.parameters)) @ X_icp
    to_truth = np.linalg.inv(truth) @ X_icp
    for gap in (between, to_truth):
        assert np.linalg.norm(gap[:3, 3]) < 3e-4
        assert Rotation.from_matrix(gap[:3, :3]).magnitude() < 3e-3
    assert registration.residual_m == pytest.approx(found.residual_m, abs=1e-4)
