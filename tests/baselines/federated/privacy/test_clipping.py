"""Clipping to a norm, and Gaussian noise."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="merging needs it")

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fleet_tools.baselines.federated.privacy.clipping import clip, gaussian_noise, l2_norm
from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.errors import ConfigError

TENSORS = st.dictionaries(
    st.sampled_from("abcd"),
    arrays(
        np.float32,
        array_shapes(min_dims=0, max_dims=2, max_side=4),
        elements=st.floats(-1e10, 1e10, width=32, allow_subnormal=False),
    ),
    max_size=3,
)
NORMS = st.floats(1e-10, 1e10)
SEEDS = st.integers(0, 1000)


@given(values=TENSORS, norm=NORMS)
def test_the_norm_is_bounded_and_the_direction_kept(values, norm):
    scaled, factor = clip(values, norm)
    flat = np.concatenate([np.zeros(0), *(each.reshape(-1) for each in values.values())])
    assert l2_norm(values) == pytest.approx(np.linalg.norm(flat), rel=1e-12)
    assert l2_norm(scaled) <= norm * (1 + 1e-6)
    assert 0 < factor <= 1 and (factor == 1) == (np.linalg.norm(flat) <= norm * (1 + 1e-12))
    for name, tensor in values.items():
        assert scaled[name].dtype == np.float32 and scaled[name].shape == tensor.shape
        np.testing.assert_allclose(scaled[name], factor * tensor, rtol=1e-6, atol=1e-37)


@given(values=TENSORS, norm=NORMS)
def test_values_within_the_norm_keep_their_bits(values, norm):
    once, _ = clip(values, norm)
    twice, _ = clip(once, norm * (1 + 1e-6))
    assert all((once[name] == twice[name]).all() for name in values)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(bad):
    with pytest.raises(MessageError, match="'b' holds NaN"):
        clip({"a": np.zeros(2, np.float32), "b": np.array([bad], np.float32)}, 1.0)


@pytest.mark.parametrize("norm", [0.0, -1.0, np.nan, np.inf])
def test_a_norm_that_is_none_is_refused(norm):
    with pytest.raises(ConfigError, match="positive"):
        clip({"a": np.ones(2, np.float32)}, norm)


@given(values=TENSORS, std=st.floats(0, 1e3), seed=SEEDS)
def test_noise_has_the_shapes_and_follows_from_the_seed_whatever_the_order(values, std, seed):
    turned = dict(reversed(values.items()))
    first, second = (
        gaussian_noise(each, std, np.random.default_rng(seed)) for each in (values, turned)
    )
    assert set(first) == set(second) == set(values)
    for name, tensor in values.items():
        assert first[name].shape == tensor.shape and first[name].dtype == np.float32
        assert (first[name] == second[name]).all()


@given(std=st.floats(1e-6, 1e6), seed=SEEDS)
def test_noise_has_its_standard_deviation_and_is_independent_between_tensors(std, seed):
    values = {name: np.ones(10_000, np.float32) for name in "ab"}
    noise = gaussian_noise(values, std, np.random.default_rng(seed))
    for tensor in noise.values():
        assert np.std(tensor) == pytest.approx(std, rel=0.05)
        assert abs(np.mean(tensor)) < 0.05 * std
    assert abs(np.corrcoef(noise["a"], noise["b"])[0, 1]) < 0.05


@pytest.mark.parametrize("std", [-1.0, np.nan, np.inf])
def test_a_standard_deviation_that_is_none_is_refused(std):
    with pytest.raises(ConfigError, match="at least 0"):
        gaussian_noise({"a": np.ones(2, np.float32)}, std, np.random.default_rng(0))
