"""Messages as bytes: msgpack, with arrays of numbers as maps of dtype, shape and data.

Bytes of strangers are data: nothing in them is run, and what they claim is checked before memory is
taken for it.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgpack
import numpy as np

from fleet_tools.envs.array_spec import DTYPES, MAX_AXES, MAX_LENGTH
from fleet_tools.errors import PolicyError

_ARRAY = {"dtype", "shape", "data"}
_NAMES = {np.dtype(name).newbyteorder("<").str: name for name in DTYPES}
_STORED = {name: np.dtype(code) for code, name in _NAMES.items()}
"""Names of the types by what NumPy writes of them, and as they are on the wire."""

_MAX_ENTRIES, _MAX_CONTAINERS = 1024, 4096
"""Entries of one map or list, and maps and lists of one message."""


class ProtocolError(PolicyError):
    """What came over the wire is not what the protocol has there."""


def encode(message: Mapping[str, Any]) -> bytes:
    """Returns a message as bytes.

    Args:
        message: Plain data (maps with names as keys, lists, text, numbers, None), and arrays with
            one of `array_spec.DTYPES`. A map with exactly the keys of an array is read as one.

    Raises:
        ProtocolError: It holds something else.
    """
    return pack(message, _plain)


def pack(message: Mapping[str, Any], plain: Callable[[Any], Any]) -> bytes:
    """Returns a message as bytes of msgpack.

    Args:
        message: Plain data and arrays.
        plain: Returns an array as plain data, or raises a TypeError.

    Raises:
        ProtocolError: It holds something else.
    """
    try:
        content = msgpack.packb(message, default=plain)
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"This cannot be sent: {error}") from None
    assert content is not None  # packb returns None to no caller
    return content


def decode(content: bytes) -> dict[str, Any]:
    """Reads a message.

    Args:
        content: The bytes; whoever received them has bounded their number.

    Returns:
        Plain data, and arrays of their own memory.

    Raises:
        ProtocolError: They are no message of `encode`.
    """
    return unpack(content, _map)


def unpack(content: bytes, read_map: Callable[[list[tuple[Any, Any]]], Any]) -> dict[str, Any]:
    """Reads a message of msgpack, whose size is bounded.

    Args:
        content: The bytes.
        read_map: Returns a map by its keys and values, or the array that it describes; or raises a
            `ProtocolError`.

    Raises:
        ProtocolError: They are no map of msgpack.
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
            object_pairs_hook=lambda pairs: counted(read_map(pairs)),
            ext_hook=_refuse_extension,
            max_array_len=_MAX_ENTRIES,
            max_map_len=_MAX_ENTRIES,
            max_ext_len=0,
        )
    except ProtocolError as error:
        raise ProtocolError(f"Not a message: {error}.") from None
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise ProtocolError(f"Not a message: {type(error).__name__}.") from None
    if not isinstance(message, dict):
        raise ProtocolError(f"Not a message: a {type(message).__name__}.")
    return message


def require_numbers(value: Any) -> np.ndarray:
    """Returns an array of numbers, in little-endian order.

    Raises:
        TypeError: It is something else.
    """
    if not isinstance(value, np.ndarray):
        raise TypeError(f"a {type(value).__name__} is neither plain data nor an array")
    if value.dtype.str in _NAMES:
        return value
    if (stored := value.dtype.newbyteorder("<")).str not in _NAMES:
        raise TypeError(f"an array of {value.dtype} does not hold numbers")
    return value.astype(stored)


def _plain(value: Any) -> dict[str, Any]:
    array = require_numbers(value)
    return {"dtype": _NAMES[array.dtype.str], "shape": array.shape, "data": array.tobytes()}


def _map(pairs: list[tuple[Any, Any]]) -> Any:
    """Returns a map, or the array that it describes."""
    found = dict(pairs)
    if len(found) == len(pairs):
        if found.keys() == _ARRAY:
            return _array(**found)
        if set(map(type, found)) <= {str}:
            return found
    raise ProtocolError("keys are names that occur once")


def _array(dtype: Any, shape: Any, data: Any) -> np.ndarray:
    if not isinstance(dtype, str) or dtype not in _STORED:
        raise ProtocolError("an array of something else than numbers")
    return read_array(_STORED[dtype], shape, data)


def read_array(stored: np.dtype, shape: Any, data: Any) -> np.ndarray:
    """Returns an array of its own memory, in this machine's order.

    Args:
        stored: Type of the stored numbers.
        shape: What is claimed to be its shape.
        data: What is claimed to be its numbers.

    Raises:
        ProtocolError: They are no such array.
    """
    if not isinstance(shape, list) or len(shape) > MAX_AXES:
        raise ProtocolError("an array with an invalid shape")
    for length in shape:
        if type(length) is not int or not 0 <= length <= MAX_LENGTH:
            raise ProtocolError("an array with an invalid shape")
    if not isinstance(data, bytes) or len(data) != math.prod(shape) * stored.itemsize:
        raise ProtocolError("an array whose data do not fill its shape")
    if stored.kind == "b" and data.strip(b"\0\1"):
        raise ProtocolError("a boolean that is neither 0 nor 1")
    try:
        array = np.frombuffer(data, stored).reshape(shape)
        return array.copy() if stored.isnative else array.astype(stored.newbyteorder("="))
    except ValueError:  # an empty one, with lengths whose product is no size
        raise ProtocolError("an array with an invalid shape") from None


def _refuse_extension(code: int, data: bytes) -> None:
    raise ProtocolError("an extension of msgpack")
