"""Columns of integers as bytes: no loss, no more bytes than planes, and one error for damage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fleet_tools.storage.integers import packed, unpacked

COLUMNS = st.lists(
    arrays(np.int64, st.integers(0, 30), elements=st.integers(-(2**63), 2**63 - 1))
    | arrays(np.int64, st.integers(0, 30), elements=st.integers(-300, 300))
    | arrays(np.uint8, st.integers(0, 30)),
    max_size=4,
)


@given(columns=COLUMNS)
def test_columns_come_back_as_they_were(columns):
    data = packed(columns)
    found = unpacked(data, len(columns) + sum(map(len, columns)))
    assert len(found) == len(columns)
    for one, other in zip(columns, found, strict=True):
        assert other.dtype == np.int64 and np.array_equal(one, other)
    assert packed(found) == data


@given(columns=COLUMNS.filter(len))
def test_more_numbers_than_are_expected_are_refused(columns):
    with pytest.raises(ValueError, match=r"too many|too large"):
        unpacked(packed(columns), len(columns) + sum(map(len, columns)) - 1)


def test_polynomials_of_time_take_no_room_and_noise_as_much_as_it_has_bits():
    time, generator = np.arange(10_000), np.random.default_rng(0)
    assert len(packed([7 * time - 3])) < 60 and len(packed([np.cumsum(5 * time)])) < 60
    noise = generator.integers(0, 8, 10_000)  # three bits each
    assert 3 * 10_000 / 8 <= len(packed([noise])) < 1.1 * 3 * 10_000 / 8
