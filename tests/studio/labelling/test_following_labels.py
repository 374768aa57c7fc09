"""What follows from labels: the pose of the hand."""

from pathlib import Path

import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from support.shares import few

from fleet_tools.assets.families import family_names, find_family, meanings_of
from fleet_tools.assets.solids import Solid, box, joined
from fleet_tools.config.geometry import Pose
from fleet_tools.sim.catalog import Kind
from fleet_tools.studio.importing.program import keypoints_of_tasks
from fleet_tools.studio.labelling.labels import Identity
from fleet_tools.studio.labelling.picking import nearest
from fleet_tools.studio.labelling.proposals import (
    centroid,
    principal_axes,
    propose_hand,
)
from fleet_tools.studio.labelling.subjects import find_example


def rotation_of(pose: Pose) -> np.ndarray:
    return pose.to_transform().rotation().matrix()


SEEDS = st.integers(0, 2**32 - 1)


def labelled(kind: Kind, family: str) -> Identity:
    """Returns what a mesh becomes in a folder that does not exist."""
    folder = Path("out") / f"{kind}s" / family / "mine"
    return Identity(kind, family, "mine", (), folder, "mine.stl")


def rotation(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return trimesh.transformations.random_rotation_matrix(rng.random(3))[:3, :3]


def fork() -> Solid:
    """Returns a body that is symmetric in y and z alone: a bar with two prongs."""
    bar = box((-0.1, -0.012, -0.006), (0.1, 0.012, 0.006))
    prongs = [box((0.1, y, -0.006), (0.14, y + 0.01, 0.006)) for y in (-0.03, 0.02)]
    return joined(bar, box((0.1, -0.03, -0.006), (0.11, 0.03, 0.006)), *prongs)


def stick(half_y: float = 0.012, half_z: float = 0.009) -> Solid:
    return box((-0.1, -half_y, -half_z), (0.15, half_y, half_z))


@given(SEEDS)
@few(15)
def test_moments_do_not_depend_on_how_a_surface_is_divided(seed):
    rng = np.random.default_rng(seed)
    mesh = trimesh.convex.convex_hull(rng.normal(size=(10, 3)) * (3, 2, 1))
    finer = mesh.subdivide()
    coarse = Solid(np.array(mesh.vertices), np.array(mesh.faces))
    fine = Solid(np.array(finer.vertices), np.array(finer.faces))
    assert centroid(fine) == pytest.approx(centroid(coarse))
    for one, other in zip(principal_axes(coarse), principal_axes(fine), strict=True):
        assert abs(one @ other) == pytest.approx(1, abs=1e-6)


@given(
    roll=st.floats(-180, 180), pitch=st.sampled_from([-90, -89.9999, 0, 90]) | st.floats(-90, 90)
)
@settings(deadline=None)
def test_every_rotation_is_a_pose_without_a_warning(roll, pitch):
    """Warnings are errors here, also where two of the three angles turn about one axis."""
    X = Pose(translation_m=(1, 2, 3), rpy_deg=(roll, pitch, 37)).to_transform()
    assert Pose.of(X).to_transform().IsNearlyEqualTo(X, 1e-6)


@given(SEEDS)
def test_the_hand_turns_with_the_tool(seed):
    R, t = rotation(seed), np.random.default_rng(seed).normal(size=3)
    surface = stick().transformed(R, t)
    hit = nearest(surface, R @ np.array([0.02, 0.003, 0.02]) + t)
    pose = propose_hand(surface, hit, ahead=R @ np.array([1.0, 0.1, 0.3]) + t, down=R[:, 2] * 3)
    assert rotation_of(pose) == pytest.approx(R, abs=1e-6)
    assert pose.translation_m == pytest.approx(R @ np.array([0.02, 0, 0]) + t, abs=1e-7)


@given(SEEDS)
def test_the_frame_of_the_hand_is_one(seed):
    rng = np.random.default_rng(seed)
    surface = fork()
    hit = nearest(surface, rng.normal(size=3) * 0.1)
    R = rotation_of(propose_hand(surface, hit, ahead=rng.normal(size=3)))
    assert pytest.approx(np.eye(3), abs=1e-9) == R.T @ R
    assert np.linalg.det(R) == pytest.approx(1)


def test_without_keypoints_the_palm_is_where_the_click_was():
    surface = stick()
    pose = propose_hand(surface, nearest(surface, np.array([0, 0, 0.05])), np.array([1.0, 0, 0]))
    assert rotation_of(pose)[:, 2] == pytest.approx([0, 0, -1], abs=1e-9)
    back = propose_hand(surface, nearest(surface, np.array([0, 0, 0.05])), np.array([-1.0, 0, 0]))
    assert rotation_of(back)[:, 0] == pytest.approx([-1, 0, 0], abs=1e-9)


@pytest.mark.parametrize("family", family_names())
def test_every_keypoint_of_a_family_has_a_meaning(family):
    found = find_family(family)
    model = found.member(next(iter(found.catalogue)))
    meanings = meanings_of(family, list(model.keypoints))
    assert meanings.keys() == model.keypoints.keys() == find_family(family).keypoints.keys()
    assert all(meaning.text for meaning in meanings.values())
    labelled: list[str] = []
    for name, meaning in meanings.items():  # what others follow from comes first
        if meaning.derived is not None:
            assert set(meaning.derived.of) <= set(labelled)
        labelled.append(name)
    if model.kind == "tool":
        working = find_family(family).alignment
        assert working is not None
        aligned = {working.ahead, *working.down}
        assert aligned | set(keypoints_of_tasks("tool", family)) == model.keypoints.keys()


@pytest.mark.parametrize("family", family_names())
def test_the_example_is_a_model_of_the_package(family):
    kind = find_family(family).kind
    example = find_example(labelled(kind, family))
    assert example is not None
    assert example.keypoints.keys() == find_family(family).keypoints.keys()
    assert find_example(labelled("object" if kind == "tool" else "tool", family)) is None
    assert find_example(labelled(kind, "spoon")) is None


@pytest.mark.parametrize("family", ["hammer", "wrench", "spatula", "knife"])
def test_the_package_s_tools_lie_in_the_hand_as_their_working_axes_say(family):
    example = find_example(labelled("tool", family))
    assert example is not None
    working, points = find_family(family).alignment, example.keypoints
    assert working is not None
    assert points[working.ahead][0] > 0.05
    start, end = working.down
    axis = points[end] - points[start]
    assert axis[2] / np.linalg.norm(axis) > 0.9
