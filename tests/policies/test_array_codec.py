"""Messages keep every bit of their arrays, and bytes of strangers are data or refused."""

from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fleet_tools.envs.array_spec import DTYPES, ArraySpec
from fleet_tools.policies.array_codec import ProtocolError, decode, encode

ARRAYS = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda dtype: arrays.arrays(
        dtype, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
    )
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5) | ARRAYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def same(first: object, second: object) -> bool:
    if isinstance(first, np.ndarray):
        return (
            isinstance(second, np.ndarray)
            and (first.dtype, first.shape) == (second.dtype, second.shape)
            and first.tobytes() == second.tobytes()
        )
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)
    return type(first) is type(second) and first == second


def test_the_types_are_those_of_layouts():
    for dtype in DTYPES:
        ArraySpec(kind="state", shape=(), dtype=dtype, unit="", frame=None)  # raises for others
    assert len(DTYPES) == 12


@given(st.dictionaries(st.text(max_size=3), PLAIN, max_size=3))
def test_what_is_sent_is_read_bit_for_bit(message):
    assert same(decode(encode(message)), message)


@given(ARRAYS, st.booleans())
def test_neither_order_of_bytes_nor_of_axes_matters(array, swapped):
    other = array.astype(array.dtype.newbyteorder(">")) if swapped else array.T
    read = decode(encode({"a": other}))["a"]
    assert same(read, other.astype(array.dtype)) and read.flags.writeable and read.flags.owndata


@pytest.mark.parametrize(
    "value",
    [
        np.array([None]), np.array(["text"]), np.array([1j]), np.zeros(1, [("x", float)]),
        np.zeros(1, "M8[s]"), np.zeros(2, np.longdouble), object(), {1, 2}, 2**64, lambda: None,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_only_numbers_are_sent(value):
    with pytest.raises(ProtocolError, match="cannot be encoded"):
        encode({"a": value})


def packed(message: object) -> bytes:
    content = msgpack.packb(message)
    assert isinstance(content, bytes)
    return content


def as_openpi(array: np.ndarray, **changes: object) -> dict[bytes, object]:
    """Returns an array as openpi-client packs it, by its documented form."""
    fields = {"data": array.tobytes(), "dtype": array.dtype.str, "shape": array.shape, **changes}
    return {b"__ndarray__": True, **{name.encode(): value for name, value in fields.items()}}


def theirs(**changes: object) -> bytes:
    return packed({"a": as_openpi(np.arange(6, dtype=np.float32), **changes)})


def number(**fields: object) -> bytes:
    return packed({"a": {b"__npgeneric__": True, **{k.encode(): v for k, v in fields.items()}}})


NO_MESSAGES = [
    b"", b"\xc1", packed(1), packed([{}]),
    packed({"a": msgpack.ExtType(1, b"pickle")}), packed({"a": msgpack.ExtType(5, b"")}),
    packed({"a": msgpack.Timestamp(0)}), packed({1: 2}), packed({b"a": 2}),
    packed({"a": {b"a": 2}}), packed({"a": {7: 1}}),
    b"\x82\xa1a\x01\xa1a\x02",  # one key twice
    packed({"a": 1}) + b"\0",
    b"\x81\xa1a\xc4\xff", b"\x81\xa1a\xc6\xff\xff\xff\xff",  # 4 GiB are claimed
    b"\x81\xa1a\xdd\xff\xff\xff\xff", b"\x81\xa1a\xdf\xff\xff\xff\xff",
    b"\x81\xa1a" + b"\x91" * 100_000, b"\x81\xa1a\xa1\xff",  # no UTF-8
    packed({"a": [[]] * 1024 * 2}), packed({"a": [[[]] * 1000] * 5}),
]  # fmt: skip
LIES = [
    theirs(dtype="|O"), theirs(dtype="f4,f4"), theirs(dtype="<c8"), theirs(dtype="<U2"),
    theirs(dtype="object"), theirs(dtype="<f16"), theirs(dtype=7), theirs(dtype=None),
    theirs(dtype=["|u1"]), theirs(shape=[2**31, 2**31]), theirs(shape=[-6]), theirs(shape=[7]),
    theirs(shape=[-2, -3]), theirs(shape="6"), theirs(shape=None), theirs(shape=[6.0]),
    theirs(shape=[True, 6]), theirs(shape=[1] * 8 + [6]), theirs(shape=[2**62, 4], data=b""),
    theirs(shape=[0, *[2**31 - 1] * 7], data=b""), theirs(shape=[0, 2**64 - 1], data=b""),
    theirs(data="abc"), theirs(data=[0]), theirs(dtype="|b1", data=b"\2", shape=[1]),
    theirs(dtype="|b1", data=b"\1\2\1", shape=[3]),
    number(data="1", dtype="<f4"), number(), number(data=2**40, dtype="|u1"),
]  # fmt: skip


@pytest.mark.parametrize("content", [*NO_MESSAGES, *LIES])
def test_what_is_no_message_is_refused(content):
    with pytest.raises(ProtocolError, match="Expected a msgpack"):
        decode(content)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_plain(content):
    try:
        message = decode(content)
    except ProtocolError:
        return
    assert isinstance(message, dict)


@given(ARRAYS)
def test_arrays_are_packed_as_openpi_packs_them(array):
    assert same(decode(packed({"x": as_openpi(array)}))["x"], array)
    fields: Any = msgpack.unpackb(encode({"x": array}))["x"]
    again = np.ndarray(
        buffer=fields[b"data"], dtype=np.dtype(fields[b"dtype"]), shape=fields[b"shape"]
    )
    assert fields[b"__ndarray__"] is True and again.tobytes() == array.tobytes()


@pytest.mark.parametrize("value", [np.float32(1.5), np.int64(-3), np.uint8(200), np.bool_(True)])
def test_numbers_come_back(value):
    found = decode(encode({"x": value}))["x"]
    assert found == value and found.dtype == value.dtype
