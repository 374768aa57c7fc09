"""Point clouds of fixed size: samplings, masks and rows without a point."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fleet_tools.envs.observation_modes import CLOUD_SAMPLINGS
from fleet_tools.perception.point_cloud import (
    ABSENT,
    OBJECT_MASK,
    PLACE_MASK,
    SAMPLINGS,
    TOOL_MASK,
    farthest_indices,
    stack,
)

# A grid of a millimetre, where rounding decides nothing.
grid = st.integers(-300, 300).map(lambda mm: mm * 1e-3)


def clouds(low: int = 0, high: int = 60) -> st.SearchStrategy[np.ndarray]:
    shapes = st.integers(low, high).map(lambda n: (n, 3))
    return shapes.flatmap(lambda shape: arrays(np.float32, shape, elements=grid))


def distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.linalg.norm(one[:, None].astype(float) - other[None], axis=2)


def farthest_one_by_one(points: np.ndarray, count: int) -> list[int]:
    """Returns samples by the definition, with squares of distances in double precision."""
    p = points.astype(float)
    squares = np.square(p - p.sum(axis=0) / len(p)).sum(axis=1)
    picked, nearest = [int(squares.argmax())], np.full(len(p), np.inf)
    while len(picked) < count:
        nearest = np.minimum(nearest, np.square(p - p[picked[-1]]).sum(axis=1))
        picked.append(int(nearest.argmax()))
    return picked


@given(clouds(), clouds(), st.integers(2, 200), st.sampled_from(sorted(SAMPLINGS)))
def test_a_place_takes_one_of_32_rows_of_the_object_and_at_least_one(tool, object, size, sampling):
    place = np.array([0.25, -0.5, 0.125])
    cloud = stack(tool, object, (7, size), SAMPLINGS[sampling], place)
    rows = max(1, size // 32)
    without = stack(tool, object, (7, size - rows), SAMPLINGS[sampling])
    np.testing.assert_array_equal(cloud[:-rows], without)
    assert len(cloud) == 7 + size and (cloud[-rows:] == [*place, PLACE_MASK]).all()


@given(st.integers(2, 700), st.integers(0, 2**32), st.data())
def test_cells_change_no_sample(n, seed, data):
    random = np.random.default_rng(seed)
    points = random.normal(size=(n, 3)) * 10.0 ** random.uniform(-4, 1, 3)
    points = points[random.integers(0, n, n)].astype(np.float32)  # some of them twice
    count = data.draw(st.integers(1, n))
    assert farthest_indices(points, count).tolist() == farthest_one_by_one(points, count)


@given(points=clouds(2), data=st.data())
def test_each_sample_is_farthest_from_those_before(points, data):
    count = data.draw(st.integers(1, len(points)))
    picked = farthest_indices(points, count)
    distance = distances(points, points)
    for k in range(1, count):
        nearest = distance[:, picked[:k]].min(axis=1)
        np.testing.assert_allclose(nearest[picked[k]], nearest.max(), atol=1e-4)


@given(points=clouds(2), data=st.data())
def test_fewer_points_are_the_first_ones(points, data):
    many, few = sorted(data.draw(st.lists(st.integers(1, len(points)), min_size=2, max_size=2)))[
        ::-1
    ]
    some = farthest_indices(points, few)
    np.testing.assert_array_equal(farthest_indices(points, many)[:few], some)


@given(clouds(), clouds(), st.sampled_from(sorted(SAMPLINGS)))
def test_a_cloud_holds_visible_points_and_nothing_else(tool, object, sampling):
    cloud = stack(tool, object, (12, 7), SAMPLINGS[sampling])
    assert cloud.shape == (19, 4)
    assert cloud.dtype == np.float32
    for rows, visible, mask in ((cloud[:12], tool, TOOL_MASK), (cloud[12:], object, OBJECT_MASK)):
        if len(visible) == 0:
            np.testing.assert_array_equal(rows, np.zeros((len(rows), 4)))
            assert ABSENT == 0.0
            continue
        assert (rows[:, 3] == mask).all()
        assert {tuple(row) for row in rows[:, :3]} <= {tuple(point) for point in visible}


@given(clouds(1, 12), st.sampled_from(sorted(SAMPLINGS)))
def test_too_few_points_are_repeated_equally_often(tool, sampling):
    cloud = stack(tool, tool[:0], (12, 1), SAMPLINGS[sampling])
    distinct = {tuple(point) for point in tool}
    assert {tuple(row) for row in cloud[:12, :3]} == distinct
    if len(distinct) == len(tool):
        times = np.unique(cloud[:12, :3], axis=0, return_counts=True)[1]
        assert times.max() - times.min() <= 1


@given(clouds(13), st.sampled_from(sorted(SAMPLINGS)))
def test_no_point_is_sampled_twice_while_others_remain(tool, sampling):
    indices = SAMPLINGS[sampling](np.unique(tool, axis=0), min(12, len(np.unique(tool, axis=0))))
    assert len(set(indices.tolist())) == len(indices)


def test_every_sampling_has_a_name_in_the_arguments_of_environments():
    assert set(CLOUD_SAMPLINGS) == set(SAMPLINGS)
