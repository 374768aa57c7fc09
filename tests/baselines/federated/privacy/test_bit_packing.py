"""Integers modulo powers of two, and as bytes: by Python's own integers of any size."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="merging needs it")

from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.baselines.federated.privacy.bit_packing import pack, unpack
from fleet_tools.baselines.federated.privacy.modular import centre, reduce
from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.errors import ConfigError

BITS = st.integers(1, 64)


@st.composite
def packable(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Integers, and the bits of each."""
    bits = draw(BITS)
    integers = draw(st.lists(st.integers(0, 2**bits - 1), max_size=40))
    return np.array(integers, np.uint64), bits


@given(case=packable())
def test_the_bytes_are_those_of_one_large_integer(case):
    integers, bits = case
    length = -(-len(integers) * bits // 8)
    large = sum(integer << place * bits for place, integer in enumerate(integers.tolist()))
    assert pack(integers, bits) == large.to_bytes(length, "little")


@given(case=packable())
def test_unpacking_is_the_inverse(case):
    integers, bits = case
    found = unpack(pack(integers, bits), bits, len(integers))
    assert found.dtype == np.uint64 and (found == integers).all()


@given(bits=BITS, integers=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_centring_is_the_inverse_of_reducing_where_integers_fit(bits, integers):
    array = np.array(integers, np.int64)
    residues = reduce(array, bits)
    assert residues.tolist() == [each % 2**bits for each in integers]
    found = centre(residues, bits)
    assert (reduce(found, bits) == residues).all()
    half = 2 ** (bits - 1)
    assert all(-half <= each < half for each in found.tolist())
    assert all(a == b for a, b in zip(found.tolist(), integers, strict=True) if -half <= b < half)


@given(case=packable(), wrong=st.integers(-3, 3).filter(bool))
def test_a_wrong_number_of_bytes_is_refused(case, wrong):
    integers, bits = case
    data = pack(integers, bits)
    data = data + bytes(wrong) if wrong > 0 else data[:wrong]
    if len(data) != len(pack(integers, bits)):
        with pytest.raises(MessageError, match="bytes do not hold"):
            unpack(data, bits, len(integers))


def test_a_negative_count_is_refused():
    with pytest.raises(MessageError, match="do not hold"):
        unpack(b"", 8, -1)


def test_something_behind_the_last_integer_is_refused():
    data = pack(np.array([1, 2, 3]), 3)  # 9 of 16 bits
    with pytest.raises(MessageError, match="not zero"):
        unpack(data[:-1] + bytes([data[-1] | 0x80]), 3, 3)


@pytest.mark.parametrize(
    ("integers", "bits"), [([-1], 8), ([256], 8), ([2], 1), ([0.5], 8), ([np.nan], 8)]
)
def test_what_does_not_fit_is_refused(integers, bits):
    with pytest.raises(MessageError, match=r"do not fit|expected"):
        pack(np.array(integers), bits)


def test_only_integers_are_reduced():
    with pytest.raises(MessageError, match="expected, not float64"):
        reduce(np.array([np.nan]), 8)


@pytest.mark.parametrize("bits", [0, 65, -1])
def test_other_numbers_of_bits_are_refused(bits):
    integers = np.zeros(3, np.uint64)
    for call in (pack, reduce, centre):
        with pytest.raises(ConfigError, match="1 to 64"):
            call(integers, bits)
    with pytest.raises(ConfigError, match="1 to 64"):
        unpack(b"", bits, 0)
