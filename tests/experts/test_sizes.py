"""Models of other sizes than those that are known: laws of scaling, and what is found of them."""

from functools import lru_cache

import numpy as np
import pytest
import trimesh
from hypothesis import given
from hypothesis import strategies as st
from pydrake.math import RigidTransform
from scipy.spatial.transform import Rotation
from support.shares import few

from fleet_tools.config.tasks import load_task
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.experts.perception.finding import Candidates, Finder
from fleet_tools.experts.perception.freedom import camera_positions
from fleet_tools.experts.perception.registration import Fit, ScaleTerms
from fleet_tools.experts.perception.shapes import Shape, TriangleSurface, sample
from fleet_tools.robot.arm import load_robot
from fleet_tools.sim.catalog import Kind, find_model
from fleet_tools.sim.splits import model_pairs

TASK = load_robot().fill(load_task("hammer"))
TOOLS = Candidates.of_training(TASK).tools

CORNERS = np.array([[0, 0, 0], [0.2, 0, 0], [0, 0.1, 0], [0.03, 0.02, 0.05]])
TETRAHEDRON = TriangleSurface(CORNERS[[[0, 1, 2], [0, 1, 3], [1, 2, 3], [0, 2, 3]]])

HALVES = np.array([-0.5, 0.5])
AROUND = 100 * np.concatenate([np.eye(3), -np.eye(3)])
"""(6, 3), cameras that see all sides of what is near to the origin, m."""

small = st.lists(st.floats(-0.01, 0.01), min_size=6, max_size=6).map(np.array)
moved = st.lists(st.floats(-2, 2), min_size=6, max_size=6).map(np.array)
sizes = st.lists(st.floats(0.8, 1.25), min_size=3, max_size=3).map(np.array)


@lru_cache
def shape(kind: Kind, family: str, name: str, fixed: bool = True) -> Shape:
    return Shape(find_model(kind, family, name), fixed)


def points_of(shape: Shape, X_P: np.ndarray, joints: np.ndarray, count: int = 1000) -> np.ndarray:
    maps = shape.place(X_P, joints)
    return np.concatenate(
        [
            sample(surface.triangles, count)[0] @ A[:3, :3].T + A[:3, 3]
            for surface, A in zip(shape.surfaces, maps, strict=True)
        ]
    )


@pytest.mark.parametrize(
    ("family", "name", "fixed"),
    [("nail", "round_nail", True), ("nut", "hex_nut", True), ("pair", "fudge", False)],
)
@given(st.floats(0.7, 1.4))
@few(5)
def test_equal_scales_of_all_links_are_a_similarity(family, name, fixed, size):
    model = shape("object", family, name, fixed)
    scaled = model.scaled(np.full((len(model.surfaces), 3), size))
    X_P = np.repeat(np.eye(4)[None], model.pieces, axis=0)
    np.testing.assert_allclose(
        points_of(scaled, X_P, model.rest), size * points_of(model, X_P, model.rest), atol=1e-12
    )
    points, scaled_points = (each.keypoints(X_P, each.rest) for each in (model, scaled))
    for point, scaled_point in zip(points.values(), scaled_points.values(), strict=True):
        np.testing.assert_allclose(scaled_point, size * point, atol=1e-12)


def height(z: np.ndarray) -> np.ndarray:
    A = np.eye(4)[None].copy()
    A[0, 2, 3] = z[0]
    return A


def affine(x: np.ndarray) -> np.ndarray:
    A = np.eye(4)
    A[:3, :3] = Rotation.from_rotvec(x[3:6]).as_matrix() * np.exp(x[6:])
    A[:3, 3] = x[:3]
    return A


@given(small, sizes, moved)
@few(5)
def test_a_known_size_comes_back_in_every_frame(x, size, motion):
    X_FC = affine(np.concatenate([motion, np.zeros(3)]))
    truth = np.concatenate([x, np.log(size)])
    A = X_FC @ affine(truth)
    cloud = sample(TETRAHEDRON.triangles, 2000)[0] @ A[:3, :3].T + A[:3, 3]
    scale_terms = ScaleTerms.of([TETRAHEDRON], np.full(9, np.inf), cloud, AROUND)
    limit = np.full(9, np.inf)
    fit = Fit([TETRAHEDRON], lambda x: (X_FC @ affine(x))[None], -limit, limit, scale_terms)
    found = fit.register(cloud, np.zeros(9), (0.01, *[0.005] * 14))
    np.testing.assert_allclose(
        found.parameters, truth, atol=3e-3
    )  # its registration ends within 1%


@given(st.integers(0, 99), st.floats(2e-3, 5e-3))
def test_of_a_thin_plate_the_side_that_cameras_see_fits(seed, thickness):
    plate = trimesh.creation.box((0.1, 0.08, thickness))
    surface = TriangleSurface(np.asarray(plate.triangles))
    cloud = np.random.default_rng(seed).uniform([-0.04, -0.03, 0], [0.04, 0.03, 0], (400, 3))
    for side in (1.0, -1.0):
        scale_terms = ScaleTerms.of(
            [surface], np.full(1, np.inf), cloud, np.array([[0.3, 0.2, side]])
        )
        fit = Fit([surface], height, np.array([-0.1]), np.array([0.1]), scale_terms)
        seen, hidden = (fit.judged(cloud, np.array([z])) for z in side * thickness * HALVES)
        assert seen.residual_m < 1e-3 < hidden.residual_m
        found = fit.register(cloud, seen.parameters - side * 0.01, (0.01, *[0.005] * 9))
        np.testing.assert_allclose(found.parameters, seen.parameters, atol=1e-5)


def test_cameras_are_where_the_task_file_puts_them():
    env = EnvSpec.of(task="hammer", obs_mode="rgbd").make_tool_use()
    observation, _ = env.reset(seed=0)
    X_WE = env.world_state().X_WE
    for position, name in zip(camera_positions(TASK, X_WE), TASK.cameras, strict=True):
        np.testing.assert_allclose(position, observation[f"{name}_X_WC"][:, 3], atol=0.03)
    env.close()


def test_a_joint_moves_as_far_as_before():
    nail = shape("object", "nail", "round_nail")
    scaled = nail.scaled(np.array([[1.2, 0.9, 1.1], [1.0, 1.0, 0.8]]))
    X_P = np.eye(4)[None]
    moved = nail.rest + 0.01
    for each in (nail, scaled):
        shift = each.keypoints(X_P, moved)["head"] - each.keypoints(X_P, nail.rest)["head"]
        assert np.linalg.norm(shift) == pytest.approx(0.01)


@pytest.mark.parametrize(
    "name", [TOOLS[0], *(pytest.param(n, marks=pytest.mark.slow) for n in TOOLS[1:])]
)
def test_a_training_tool_is_found_among_all(name):
    tool = shape("tool", "hammer", name)
    X = np.eye(4)
    X[:3, :3] = Rotation.from_euler("y", 4, degrees=True).as_matrix()
    X[:3, 3] = [0.01, 0, -0.002]
    cloud = points_of(tool, X[None], tool.rest)
    found = Finder(TASK, Candidates.of_training(TASK)).find_tool(cloud, RigidTransform())
    assert found.residual_m < 1e-4
    for point, p in tool.keypoints(X[None], tool.rest).items():
        np.testing.assert_allclose(found.keypoints[point], p, atol=1e-4)


@given(sizes)
@few(2)
def test_keypoints_of_a_scaled_tool_are_found(size):
    mallet = shape("tool", "hammer", "mallet").scaled(size[None])
    cloud = points_of(mallet, np.eye(4)[None], mallet.rest, 2000)
    found = Finder(TASK, Candidates(("mallet",), ("round_nail",), known=False)).find_tool(
        cloud, RigidTransform()
    )
    truth = mallet.keypoints(np.eye(4)[None], mallet.rest)
    np.testing.assert_allclose(found.keypoints["head"], truth["head"], atol=2e-3)


def test_held_out_models_are_no_candidates():
    for name in ("hammer", "wrench", "spatula", "knife"):
        task = load_task(name)
        candidates = Candidates.of_training(task)
        assert set(candidates.tools).isdisjoint(task.held_out.tools)
        assert set(candidates.objects).isdisjoint(task.held_out.objects)
        assert {tool for tool, _ in model_pairs(task, "train")} == set(candidates.tools)
