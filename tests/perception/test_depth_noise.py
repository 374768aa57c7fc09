"""Noise of depths: its variance, its correlation, and what becomes of edges."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fleet_tools.perception.depth_sensor import AxialNoise, DepthNoise, displaced, unit_error

FOCAL_PX = 330.0
SILENT = AxialNoise(0.0, 0.0, 0.0)
NGUYEN = AxialNoise(0.0012, 0.0019, 0.4)

spacings = st.floats(0.3, 12.0)
offsets = st.tuples(st.floats(0, 0.999), st.floats(0, 0.999)).map(np.array)
pixels = st.tuples(st.integers(0, 30), st.integers(0, 20))


def face(depth: float, size: tuple[int, int] = (60, 80)) -> np.ndarray:
    """Returns an image that one face fills."""
    return np.full(size, depth, np.float32)


def read(
    image: np.ndarray, axial: AxialNoise, lateral_px: float, spacing_px: float = 2.3, seed: int = 0
) -> np.ndarray:
    """Returns what the known pixels of an image read, as an image."""
    noise, known = DepthNoise(axial, lateral_px, spacing_px), np.flatnonzero(~np.isnan(image))
    depths = np.full(image.size, np.nan)
    depths[known] = noise.read(image, known, FOCAL_PX, np.random.default_rng(seed))
    return depths.reshape(image.shape)


def weights(pixel: tuple[int, int], offset: np.ndarray, spacing: float) -> np.ndarray:
    """Returns the factors of a pixel's error, by node, from nodes of which one is not zero."""
    shape = np.ceil(np.array([21, 31]) / spacing).astype(int) + 2
    y, x = offset + np.array([pixel[1], pixel[0]]) / spacing
    found = np.zeros(shape)
    for i in range(int(y), int(y) + 2):
        for j in range(int(x), int(x) + 2):
            nodes = np.zeros(shape)
            nodes[i, j] = 1.0
            found[i, j] = unit_error(*pixel, nodes, offset, spacing)
    return found


# --- The error of a pixel is a sum of independent unit normals ----------------------------------


@given(pixels, offsets, spacings)
def test_the_error_of_every_pixel_has_variance_one(pixel, offset, spacing):
    assert np.square(weights(pixel, offset, spacing)).sum() == pytest.approx(1.0, abs=1e-12)


@given(pixels, pixels, offsets, spacings)
def test_errors_are_alike_nearby_and_independent_from_two_nodes_on(one, other, offset, spacing):
    correlation = (weights(one, offset, spacing) * weights(other, offset, spacing)).sum()
    apart = np.abs(np.subtract(one, other)) / spacing
    assert -1e-12 <= correlation <= 1 + 1e-12
    if apart.max() >= 2:
        assert correlation == 0
    if apart.max() <= 0.1:
        assert correlation > 0.8


def test_half_of_the_correlation_is_left_after_three_quarters_of_a_spacing():
    spacing, generator = 8.0, np.random.default_rng(0)
    found = {}
    for lag in (0, 4, 6, 8, 16):
        drawn = [
            (weights((3, 3), o, spacing) * weights((3 + lag, 3), o, spacing)).sum()
            for o in generator.random((300, 2))
        ]
        found[lag] = np.mean(drawn)
    assert found[0] == pytest.approx(1) and found[16] == 0
    assert found[4] > 0.65 > 0.6 > found[6] > 0.35 > found[8] > 0.1


@given(st.integers(0, 2**64), st.integers(1, 400))
def test_a_pixel_reads_the_same_whatever_else_is_asked(seed, count):
    image, noise = face(0.7), DepthNoise(NGUYEN, 0.6, 2.3)
    chosen = np.random.default_rng(seed).choice(image.size, count, replace=False)

    def depths(asked: np.ndarray) -> np.ndarray:
        return noise.read(image, asked, FOCAL_PX, np.random.default_rng(seed))

    np.testing.assert_array_equal(depths(np.arange(image.size))[chosen], depths(chosen))


# --- Along the ray ------------------------------------------------------------------------------


@given(st.floats(0.1, 3.0), st.integers(0, 2**32))
def test_no_noise_changes_nothing(depth, seed):
    image = face(depth) + np.random.default_rng(seed).normal(0, 0.01, (60, 80)).astype(np.float32)
    np.testing.assert_array_equal(read(image, SILENT, 0.0, seed=seed), image)


@pytest.mark.parametrize("depth", [0.15, 0.4, 0.7, 1.1, 2.5])
@pytest.mark.parametrize(
    "axial", [NGUYEN, AxialNoise.of_disparity(0.08, 989.1, 0.055)], ids=["kinect", "stereo"]
)
def test_depths_spread_as_the_standard_deviation_says(axial, depth):
    spacing = 2.3
    far_apart = [read(face(depth), axial, 0.0, spacing, seed)[::5, ::5] for seed in range(30)]
    errors = (np.concatenate(far_apart).ravel() - np.float32(depth)) / axial.sigma_m(depth)
    low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], len(errors))
    assert low < np.square(errors).sum() < high
    assert abs(errors.mean()) < 5 / np.sqrt(len(errors))
    assert stats.kstest(errors, "norm").pvalue > 1e-4


def test_the_axial_noise_of_the_kinect_is_the_published_one():
    np.testing.assert_allclose(NGUYEN.sigma_m(np.array([0.4, 1.4, 2.4])), [0.0012, 0.0031, 0.0088])
    assert NGUYEN.sigma_m(np.array([0.1])) == 0.0012  # nearer than the device measures


@given(st.floats(0.1, 3.0), st.floats(300, 1200), st.floats(0.01, 0.1), st.floats(0.001, 0.1))
def test_the_noise_of_stereo_is_that_of_its_disparities(depth, focal_px, baseline_m, sigma_px):
    disparity = focal_px * baseline_m / depth
    step = 1e-6
    slope = focal_px * baseline_m * (1 / disparity - 1 / (disparity + step)) / step
    sigma_m = AxialNoise.of_disparity(sigma_px, focal_px, baseline_m).sigma_m(np.array(depth))
    assert sigma_m == pytest.approx(slope * sigma_px, rel=1e-4)


# --- Edges --------------------------------------------------------------------------------------


def test_only_edges_are_lost():
    image = np.full((60, 80), np.nan, np.float32)
    image[10:50, 15:65] = 0.8
    lost = np.mean([np.isnan(read(image, SILENT, 0.4, seed=seed)) for seed in range(300)], axis=0)
    assert lost[13:47, 18:62].max() == 0  # farther inside than any displacement
    edge = np.concatenate([lost[10, 15:65], lost[49, 15:65], lost[10:50, 15], lost[10:50, 64]])
    # A displacement of half a pixel is read one pixel farther out.
    assert edge.mean() == pytest.approx(stats.norm.sf(0.5 / 0.4), abs=0.02)
    inner = np.concatenate([lost[11, 16:64], lost[48, 16:64]])
    assert 0 <= inner.mean() < 0.01


@pytest.mark.parametrize("seed", range(5))
def test_a_step_of_depth_is_an_edge_from_both_sides(seed):
    image = face(0.8)
    image[:, 40:] = 0.9
    depths = read(image, SILENT, 0.8, seed=seed)
    (columns,) = np.nonzero(np.isnan(depths).sum(axis=0))
    assert {39, 40} <= set(columns.tolist()) <= set(range(34, 46))
    assert set(np.unique(depths[~np.isnan(depths)]).tolist()) == set(np.unique(image).tolist())


@given(st.floats(-70, 70), st.integers(0, 1000))
def test_an_inclined_face_is_read_beside_the_pixel_and_never_lost(degrees, seed):
    u = np.arange(80) - 39.5
    slope = np.tan(np.deg2rad(degrees))
    image = np.tile((0.8 / (1 - slope * u / FOCAL_PX)).astype(np.float32), (60, 1))
    depths = read(image, SILENT, 0.5, seed=seed)
    assert not np.isnan(depths).any()
    for column in range(5, 75):
        assert np.isin(depths[:, column], image[0, column - 5 : column + 6]).all()


@given(st.floats(0, 1e9), st.integers(0, 100))
def test_displacements_of_any_size_stay_in_the_image(lateral, seed):
    nodes = np.random.default_rng(seed).normal(size=(3, 20, 20)).astype(np.float32)
    image = face(1.0, (8, 9))
    asked = np.arange(image.size)
    depths, errors = displaced(image, asked, nodes, np.array([0.5, 0.5]), 1.0, lateral, 0.02)
    assert (depths == 1.0).all() and np.isfinite(errors).all()
