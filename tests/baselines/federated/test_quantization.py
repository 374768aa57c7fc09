"""Stochastic quantization: unbiased, bounded, and without effect on levels."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="merging needs it")

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fleet_merging.errors import MessageError
from fleet_tools.baselines.federated.vectors import (
    BITS,
    dequantize,
    pack,
    quantize,
    top_level,
    unpack,
)
from fleet_tools.errors import ConfigError

SEEDS = st.integers(0, 1000)
LARGEST = st.floats(1e-20, 1e20)
VALUES = arrays(
    np.float32,
    array_shapes(min_dims=0, min_side=0, max_side=5),
    elements=st.floats(-(2.0**66), 2.0**66, width=32),
)


@given(bits=st.sampled_from(BITS), largest=LARGEST, share=st.floats(-1, 1), seed=SEEDS)
def test_the_mean_of_many_is_the_value_within_its_standard_error(bits, largest, share, seed):
    value, count = np.float32(share * largest), 4000
    integers = quantize(np.full(count, value), largest, bits, np.random.default_rng(seed))
    step = largest / top_level(bits)
    error = np.mean(dequantize(integers, largest, bits), dtype=np.float64) - value
    # A value between two levels has a standard deviation of at most half a step.
    assert abs(error) <= 5 * step / 2 / np.sqrt(count) + 2.0**-22 * largest


@given(values=VALUES, bits=st.sampled_from(BITS), largest=LARGEST, seed=SEEDS)
def test_no_value_moves_by_more_than_a_step_and_larger_ones_saturate(values, bits, largest, seed):
    before = values.copy()
    integers = quantize(values, largest, bits, np.random.default_rng(seed))
    assert integers.dtype == np.int64 and integers.shape == values.shape
    assert (np.abs(integers) <= top_level(bits)).all()
    found = dequantize(integers, largest, bits)
    assert found.dtype == np.float32 and found.shape == values.shape
    kept = np.clip(values.astype(np.float64), -largest, largest)
    assert (np.abs(found - kept) <= largest / top_level(bits) + 1e-6 * largest).all()
    assert (values == before).all()


@given(bits=st.sampled_from(BITS), largest=LARGEST, seed=SEEDS)
def test_every_level_is_kept(bits, largest, seed):
    levels = np.arange(-top_level(bits), top_level(bits) + 1)
    values = dequantize(levels, largest, bits)
    assert (quantize(values, largest, bits, np.random.default_rng(seed)) == levels).all()


@given(values=VALUES, bits=st.sampled_from(BITS), largest=LARGEST, seed=SEEDS)
def test_a_seed_gives_the_same_integers(values, bits, largest, seed):
    first, second = (quantize(values, largest, bits, np.random.default_rng(seed)) for _ in "ab")
    assert (first == second).all()


@st.composite
def packable(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Levels, and the bits of each."""
    bits = draw(st.sampled_from(BITS))
    top = top_level(bits)
    return np.array(draw(st.lists(st.integers(-top, top), max_size=40)), np.int64), bits


@given(case=packable())
def test_the_bytes_are_those_of_one_large_integer_and_back(case):
    integers, bits = case
    length = -(-len(integers) * bits // 8)
    large = sum(each % 2**bits << place * bits for place, each in enumerate(integers.tolist()))
    data = pack(integers, bits)
    assert data == large.to_bytes(length, "little")
    assert (unpack(data, bits, len(integers)) == integers).all()


@given(case=packable(), wrong=st.integers(-3, 3).filter(bool))
def test_bytes_that_lie_are_refused(case, wrong):
    integers, bits = case
    packed = pack(integers, bits)
    data = packed + bytes(wrong) if wrong > 0 else packed[:wrong]
    if len(data) != len(packed):
        with pytest.raises(MessageError, match="bytes do not hold"):
            unpack(data, bits, len(integers))
    with pytest.raises(MessageError, match="not zero"):
        unpack(b"\x04", 2, 1)
    with pytest.raises(MessageError, match="do not fit"):
        pack(np.array([top_level(bits) + 1]), bits)


def test_two_bits_have_three_levels_and_zero_stays_zero():
    generator = np.random.default_rng(0)
    values = np.linspace(-1, 1, 1001, dtype=np.float32)
    assert set(quantize(values, 1.0, 2, generator).tolist()) == {-1, 0, 1}
    assert not quantize(np.zeros(1000, np.float32), 1.0, 2, generator).any()


def test_sums_of_levels_are_dequantized_beyond_the_largest():
    assert dequantize(np.array([300 * 127]), 0.5, 8) == np.float32(150)


@given(values=VALUES, bits=st.sampled_from(BITS))
def test_a_range_of_zero_gives_zeros(values, bits):
    assert not quantize(values, 0.0, bits, np.random.default_rng(0)).any()


def test_the_smallest_range_saturates_without_a_warning():
    values = np.array([1e30, -1e-30, 0], np.float32)
    assert quantize(values, 5e-324, 8, np.random.default_rng(0)).tolist() == [127, -127, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(bad):
    values = np.array([0.5, bad], np.float32)
    for largest in (1.0, 0.0):
        with pytest.raises(MessageError, match="NaN or infinite"):
            quantize(values, largest, 8, np.random.default_rng(0))


@pytest.mark.parametrize("largest", [np.nan, np.inf, -1.0])
def test_a_range_that_is_none_is_refused(largest):
    with pytest.raises(MessageError, match="finite and at least 0"):
        quantize(np.zeros(2, np.float32), largest, 8, np.random.default_rng(0))
    with pytest.raises(MessageError, match="finite and at least 0"):
        dequantize(np.zeros(2, np.int64), largest, 8)


@pytest.mark.parametrize("bits", [0, 1, 3, -8, 64, 8.5])
def test_other_numbers_of_bits_are_refused(bits):
    with pytest.raises(ConfigError, match="possible"):
        quantize(np.zeros(2, np.float32), 1.0, bits, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="possible"):
        dequantize(np.zeros(2, np.int64), 1.0, bits)
