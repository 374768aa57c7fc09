"""Messages as bytes: msgpack, in which arrays are maps, as in the package openpi-client.

    {b"__ndarray__": True, b"data": bytes, b"dtype": "<f4", b"shape": [2, 3]}
    {b"__npgeneric__": True, b"data": 1.5, b"dtype": "<f8"}

Bytes of strangers are data: nothing in them is run, and what they claim is checked before memory is
taken for it. See https://pypi.org/project/openpi-client for the form.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np

from fleet_tools.envs.array_spec import DTYPES, MAX_AXES, MAX_LENGTH
from fleet_tools.errors import PolicyError

_ARRAY, _NUMBER = b"__ndarray__", b"__npgeneric__"
_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")

_MAX_ENTRIES, _MAX_CONTAINERS = 1024, 4096
"""Entries of one map or list, and maps and lists of one message."""


class ProtocolError(PolicyError):
    """A message does not follow the protocol."""


def encode(message: Mapping[str, Any]) -> bytes:
    """Returns a message as bytes.

    Args:
        message: Plain data (maps with names as keys, lists, text, numbers, None), and arrays and
            NumPy's numbers of one of `array_spec.DTYPES`.

    Raises:
        ProtocolError: It holds something else.
    """
    try:
        content = msgpack.packb(message, default=_plain)
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"The message cannot be encoded: {error}") from None
    assert content is not None  # packb returns None to no caller
    return content


def decode(content: bytes) -> dict[str, Any]:
    """Reads a message.

    Args:
        content: The bytes; whoever received them has bounded their number.

    Returns:
        Plain data, NumPy's numbers, and arrays of their own memory in this machine's order.

    Raises:
        ProtocolError: They are no message of `encode`.
    """
    containers = 0

    def counted(container: Any) -> Any:
        nonlocal containers
        containers += 1
        if containers > _MAX_CONTAINERS:
            raise ProtocolError(f"more than {_MAX_CONTAINERS} maps and lists")
        return container

    try:
        message = msgpack.unpackb(
            content,
            list_hook=counted,
            object_pairs_hook=lambda pairs: counted(_map(pairs)),
            ext_hook=_refuse_extension,
            max_array_len=_MAX_ENTRIES,
            max_map_len=_MAX_ENTRIES,
            max_ext_len=0,
        )
    except ProtocolError as error:
        raise ProtocolError(f"Expected a msgpack message: {error}.") from None
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise ProtocolError(
            f"Expected a msgpack message; decoding failed with {type(error).__name__}."
        ) from None
    if not isinstance(message, dict):
        raise ProtocolError(f"Expected a msgpack map; got a {type(message).__name__}.")
    return message


def _plain(value: Any) -> dict[bytes, Any]:
    if not isinstance(value, np.ndarray | np.generic):
        raise TypeError(f"a {type(value).__name__} is neither plain data nor an array")
    if value.dtype.newbyteorder("=").name not in DTYPES:
        raise TypeError(f"an array of {value.dtype} does not hold numbers")
    stored = value.dtype.newbyteorder("<")
    if isinstance(value, np.generic):
        return {_NUMBER: True, b"data": value.item(), b"dtype": stored.str}
    data = value.astype(stored, copy=False).tobytes()
    return {_ARRAY: True, b"data": data, b"dtype": stored.str, b"shape": list(value.shape)}


def _map(pairs: list[tuple[Any, Any]]) -> Any:
    """Returns a map, or the array or number that it describes."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ProtocolError("a key occurs twice")
    if _ARRAY in found:
        return _array(_dtype(found), found.get(b"shape"), found.get(b"data"))
    if _NUMBER in found:
        value = found.get(b"data")
        if not isinstance(value, bool | int | float):
            raise ProtocolError("expected a number; got text or nothing")
        try:
            return _dtype(found).type(value)
        except (OverflowError, ValueError):
            raise ProtocolError("a number is out of the range of its type") from None
    if not all(isinstance(key, str) for key in found):
        raise ProtocolError("expected keys that are strings")
    return found


def _dtype(found: Mapping[Any, Any]) -> np.dtype:
    name = found.get(b"dtype")
    if not isinstance(name, str) or not _DTYPE.fullmatch(name):
        raise ProtocolError("an array holds no numbers")
    return np.dtype(name)


def _array(stored: np.dtype, shape: Any, data: Any) -> np.ndarray:
    if not isinstance(shape, list) or len(shape) > MAX_AXES:
        raise ProtocolError("an array with an invalid shape")
    for length in shape:
        if type(length) is not int or not 0 <= length <= MAX_LENGTH:
            raise ProtocolError("an array with an invalid shape")
    if not isinstance(data, bytes) or len(data) != math.prod(shape) * stored.itemsize:
        raise ProtocolError("an array has data of another size than its shape")
    if stored.kind == "b" and data.strip(b"\0\1"):
        raise ProtocolError("a boolean is neither 0 nor 1")
    try:
        array = np.frombuffer(data, stored).reshape(shape)
        return array.copy() if stored.isnative else array.astype(stored.newbyteorder("="))
    except ValueError:  # an empty one, with lengths whose product is no size
        raise ProtocolError("an array with an invalid shape") from None


def _refuse_extension(code: int, data: bytes) -> None:
    raise ProtocolError("expected no extension types of msgpack")
