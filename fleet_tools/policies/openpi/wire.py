"""openpi's messages as bytes: msgpack, with arrays and NumPy's numbers as maps of bytes.

{b"__ndarray__": True, b"data": bytes, b"dtype": "<f4", b"shape": [2, 3]}
{b"__npgeneric__": True, b"data": 1.5, b"dtype": "<f8"}
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from fleet_tools.policies.remote.codec import (
    ProtocolError,
    pack,
    read_array,
    require_numbers,
    unpack,
)

_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")
_ARRAY, _NUMBER = b"__ndarray__", b"__npgeneric__"


def encode(message: Mapping[str, Any]) -> bytes:
    """Returns a message as bytes.

    Args:
        message: Plain data, and arrays of numbers.

    Raises:
        ProtocolError: It holds something else.
    """
    return pack(message, _plain)


def decode(content: bytes) -> dict[str, Any]:
    """Reads a message.

    Args:
        content: The bytes; whoever received them has bounded their number.

    Returns:
        Plain data, numbers, and arrays of their own memory.

    Raises:
        ProtocolError: They are no map in openpi's form.
    """
    return unpack(content, _map)


def _plain(value: Any) -> dict[bytes, Any]:
    if isinstance(value, np.generic):
        number = require_numbers(np.asarray(value))
        return {_NUMBER: True, b"data": number.item(), b"dtype": number.dtype.str}
    array = require_numbers(value)
    shape = list(array.shape)
    return {_ARRAY: True, b"data": array.tobytes(), b"dtype": array.dtype.str, b"shape": shape}


def _map(pairs: list[tuple[Any, Any]]) -> Any:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ProtocolError("keys occur once")
    if _ARRAY in found:
        return read_array(_dtype(found), found.get(b"shape"), found.get(b"data"))
    if _NUMBER in found:
        value = found.get(b"data")
        if not isinstance(value, bool | int | float):
            raise ProtocolError("a number that is none")
        try:
            return _dtype(found).type(value)
        except (OverflowError, ValueError):
            raise ProtocolError("a number that its type does not hold") from None
    if not all(isinstance(key, str) for key in found):
        raise ProtocolError("keys are names")
    return found


def _dtype(found: Mapping[Any, Any]) -> np.dtype:
    name = found.get(b"dtype")
    if not isinstance(name, str) or not _DTYPE.fullmatch(name):
        raise ProtocolError("an array of something else than numbers")
    return np.dtype(name)
