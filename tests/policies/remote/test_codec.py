"""Messages keep every bit of their arrays, and bytes of strangers are data or refused."""

import numpy as np
import pytest

pytest.importorskip("msgpack")

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support.served_policies import LAYOUT, observation

from fleet_tools.envs.array_spec import DTYPES, ArraySpec
from fleet_tools.policies.remote.codec import ProtocolError, decode, encode
from fleet_tools.policies.remote.messages import Act, largest_request, read_message

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


def test_the_types_are_those_of_layouts() -> None:
    for dtype in DTYPES:
        ArraySpec(kind="state", shape=(), dtype=dtype, unit="", frame=None)  # raises for others
    assert len(DTYPES) == 12


@given(st.dictionaries(st.text(max_size=3), PLAIN, max_size=3))
def test_what_is_sent_is_read_bit_for_bit(message: dict) -> None:
    assert same(decode(encode(message)), message)


@given(ARRAYS, st.booleans())
def test_neither_order_of_bytes_nor_of_axes_matters(array: np.ndarray, swapped: bool) -> None:
    other = array.astype(array.dtype.newbyteorder(">")) if swapped else array.T
    read = decode(encode({"a": other}))["a"]
    assert same(read, other.astype(array.dtype)) and read.flags.writeable and read.flags.owndata


@pytest.mark.parametrize(
    "value",
    [
        np.array([None]),
        np.array(["text"]),
        np.array([1j]),
        np.zeros(1, [("x", float)]),
        np.zeros(1, "M8[s]"),
        np.zeros(2, np.longdouble),
        object(),
        {1, 2},
        2**64,
        lambda: None,
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_numbers_are_sent(value: object) -> None:
    with pytest.raises(ProtocolError, match="cannot be sent"):
        encode({"a": value})


def packed(message: object) -> bytes:
    content = msgpack.packb(message)
    assert content is not None
    return content


def raw(dtype: object = "uint8", shape: object = (), data: object = b"\0", **more: object) -> bytes:
    return packed({"a": {"dtype": dtype, "shape": shape, "data": data, **more}})


@pytest.mark.parametrize(
    "content",
    [
        raw("object"),
        raw("O"),
        raw("<f8", (), bytes(8)),
        raw("float128", (), bytes(16)),
        raw("str"),
        raw(7),
        raw(None),
        raw(["uint8"]),
        raw(shape=(2,)),
        raw(shape=(-1, -1)),
        raw(shape=(True,)),
        raw(shape=(1.0,)),
        raw(shape="1"),
        raw(shape=None),
        raw(shape=(1,) * 9),
        raw(shape=(2**62, 4), data=b""),
        raw(shape=(0, *(2**31 - 1,) * 7), data=b""),
        raw(shape=(0, 2**64 - 1), data=b""),
        raw(data="\0"),
        raw(data=[0]),
        raw("bool", (2,), b"\1\2"),
        raw("bool", (3,), b"\1\2\1"),
        b"",
        b"\xc1",
        packed(1),
        packed([{}]),
        packed({"a": msgpack.ExtType(1, b"pickle")}),
        packed({"a": msgpack.ExtType(5, b"")}),
        packed({"a": msgpack.Timestamp(0)}),
        packed({1: 2}),
        packed({b"a": 2}),
        packed({"a": {b"a": 2}}),
        b"\x82\xa1a\x01\xa1a\x02",  # one key twice
        packed({"a": 1}) + b"\0",
        b"\x81\xa1a\xc4\xff",
        b"\x81\xa1a\xc6\xff\xff\xff\xff",  # 4 GiB are claimed
        b"\x81\xa1a\xdd\xff\xff\xff\xff",
        b"\x81\xa1a\xdf\xff\xff\xff\xff",
        b"\x81\xa1a" + b"\x91" * 100_000,
        b"\x81\xa1a\xa1\xff",  # no UTF-8
        packed({"a": [[]] * 1024 * 2}),
        packed({"a": [[[]] * 1000] * 5}),
    ],
    ids=range(42),
)
def test_what_is_no_message_is_refused(content: bytes) -> None:
    with pytest.raises(ProtocolError, match="Not a message"):
        decode(content)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_plain(content: bytes) -> None:
    try:
        message = decode(content)
    except ProtocolError:
        return
    assert isinstance(message, dict)


@given(st.data())
def test_damaged_requests_are_refused_or_valid(data: st.DataObject) -> None:
    content = bytearray(Act(seq=1, time_s=0.1, observation=observation()).to_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        request = read_message(bytes(content[: data.draw(st.integers(0, len(content)))]), Act)
    except ProtocolError as error:
        assert len(str(error)) <= 500
        return
    assert all(isinstance(each, np.ndarray) for each in request.observation.values())
    assert same(read_message(request.to_bytes(), Act).observation, request.observation)


def test_the_largest_request_is_large_enough_and_not_much_larger() -> None:
    size = len(Act(seq=2**63 - 1, time_s=1 / 3, observation=observation()).to_bytes())
    assert size <= largest_request(LAYOUT) <= size + 2048
