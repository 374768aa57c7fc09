"""What a policy's features tell: laws of the readout."""

import numpy as np
from cloud_readout import read_out
from hypothesis import given
from hypothesis import strategies as st
from pose_errors import deviations_deg

seeds = st.integers(0, 2**32 - 1)


def problem(seed: int):
    """200 steps, of which the first 150 are fitted, and what depends on them linearly."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(200, 5)) @ rng.normal(size=(5, 8)) + rng.normal(size=8)
    targets = features @ rng.normal(size=(8, 3)) + rng.normal(size=3)
    return features, targets, np.arange(200) < 150


@given(seeds)
def test_what_is_linear_in_the_features_is_read_in_steps_that_were_not_fitted(seed):
    features, targets, seen = problem(seed)
    errors = read_out(features, targets, seen)[~seen] - targets[~seen]
    assert np.abs(errors).max() < 0.05 * targets.std()


@given(seeds, st.floats(1e-2, 1e2))
def test_the_unit_of_a_feature_does_not_matter(seed, unit):
    features, targets, seen = problem(seed)
    scaled = features * np.r_[unit, np.ones(7)]
    one, other = (read_out(each, targets, seen) for each in (features, scaled))
    np.testing.assert_allclose(one, other, atol=1e-2 * targets.std())


@given(seeds)
def test_steps_that_are_not_fitted_tell_nothing(seed):
    features, targets, seen = problem(seed)
    changed = np.where(seen[:, None], targets, 1e3)
    assert np.array_equal(read_out(features, changed, seen), read_out(features, targets, seen))


@given(seeds)
def test_features_that_know_nothing_read_no_better_than_the_mean(seed):
    features, targets, seen = problem(seed)
    nothing = np.random.default_rng(seed + 1).normal(size=features.shape)
    errors = read_out(nothing, targets, seen)[~seen] - targets[~seen]
    baseline = targets[seen].mean(0) - targets[~seen]
    assert np.square(errors).mean() > 0.7 * np.square(baseline).mean()


@given(st.floats(-720, 720), st.sampled_from([60.0, 90.0, 360.0]), st.floats(0.1, 10))
def test_angles_of_directions_in_a_plane_are_the_rest_of_a_division(degrees, repeats, length):
    angle = np.radians(degrees)
    one = np.array([[1.0, 0, 0]])
    other = length * np.array([[np.cos(angle), np.sin(angle), 0]])
    (found,) = deviations_deg(one, other, repeats)
    folded = abs((degrees + 180) % 360 - 180)  # an angle of directions has no sign
    expected = min(folded % repeats, repeats - folded % repeats)
    assert np.isclose(found, expected, atol=1e-5)
    assert 0 <= found <= repeats / 2
