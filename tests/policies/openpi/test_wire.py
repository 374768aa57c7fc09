"""openpi's messages: what it packs is read, and what lies is refused."""

import contextlib

import numpy as np
import pytest

pytest.importorskip("msgpack")

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fleet_tools.envs.array_spec import DTYPES
from fleet_tools.policies.openpi.wire import decode, encode
from fleet_tools.policies.remote.codec import ProtocolError

ARRAYS = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda name: arrays.arrays(name, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0))
)


def to_msgpack(message: object) -> bytes:
    content = msgpack.packb(message)
    assert isinstance(content, bytes)
    return content


def packed(array: np.ndarray, **changes: object) -> dict[bytes, object]:
    """Returns an array as openpi-client packs it, by its documented form."""
    fields = {
        "__ndarray__": True,
        "data": array.tobytes(),
        "dtype": array.dtype.str,
        "shape": array.shape,
    }
    return {name.encode(): value for name, value in {**fields, **changes}.items()}


@given(ARRAYS)
def test_arrays_come_back(array: np.ndarray) -> None:
    for content in (encode({"x": array}), to_msgpack({"x": packed(array)})):
        found = decode(content)["x"]
        assert found.dtype == array.dtype and found.shape == array.shape
        assert found.tobytes() == array.tobytes() and found.flags.writeable


@given(ARRAYS)
def test_arrays_are_packed_as_openpi_packs_them(array: np.ndarray) -> None:
    fields = msgpack.unpackb(encode({"x": array}))["x"]
    again = np.ndarray(
        buffer=fields[b"data"], dtype=np.dtype(fields[b"dtype"]), shape=fields[b"shape"]
    )
    assert fields[b"__ndarray__"] is True and again.tobytes() == array.tobytes()


@pytest.mark.parametrize("value", [np.float32(1.5), np.int64(-3), np.uint8(200), np.bool_(True)])
def test_numbers_come_back(value: np.generic) -> None:
    found = decode(encode({"x": value}))["x"]
    assert found == value and found.dtype == value.dtype


def test_plain_data_come_back() -> None:
    message = {
        "prompt": "hit the pin",
        "reset": True,
        "numbers": [1, 2.5, None],
        "nested": {"a": 1},
    }
    assert decode(encode(message)) == message


FINE = np.arange(6, dtype=np.float32)
LIES = {
    "an object": packed(FINE, dtype="|O"),
    "a structure": packed(FINE, dtype="f4,f4"),
    "a complex number": packed(FINE, dtype="<c8"),
    "text": packed(FINE, dtype="<U2"),
    "no dtype": packed(FINE, dtype=7),
    "too much memory": packed(FINE, shape=[2**31, 2**31]),
    "a negative length": packed(FINE, shape=[-6]),
    "too few data": packed(FINE, shape=[7]),
    "no shape": packed(FINE, shape="6"),
    "data of text": packed(FINE, data="abc"),
    "a boolean of 2": packed(FINE, dtype="|b1", data=b"\2", shape=[1]),
    "a number of text": {b"__npgeneric__": True, b"data": "1", b"dtype": "<f4"},
    "a number of nothing": {b"__npgeneric__": True},
    "a number that is too large": {b"__npgeneric__": True, b"data": 2**40, b"dtype": "|u1"},
    "a key of bytes": {b"secret": 1},
    "a key of a number": {7: 1},
}


@pytest.mark.parametrize("name", LIES)
def test_lies_are_refused(name: str) -> None:
    with pytest.raises(ProtocolError):
        decode(to_msgpack({"x": LIES[name]}))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_a_map(content: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert isinstance(decode(content), dict)
