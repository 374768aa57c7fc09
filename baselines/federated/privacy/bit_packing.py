"""Unsigned integers of any number of bits as bytes, without gaps.

Bit i of integer j is bit j * bits + i of the bytes, where the lowest bit of a byte is its first.
Eight integers therefore fill a group of `bits` bytes, in which integers and bytes overlap in the
same way in every group. What is left of the last byte is zero.
"""

from collections.abc import Iterator

import numpy as np

from fleet_tools.baselines.federated.privacy.modular import check_bits
from fleet_tools.baselines.merging.errors import MessageError

_GROUP = 8
"""Integers of a group."""


def pack(integers: np.ndarray, bits: int) -> bytes:
    """Returns integers as ceil(count * bits / 8) bytes.

    Args:
        integers: Integers from 0 to 2**bits - 1, of any shape.
        bits: 1 to 64.

    Raises:
        ConfigError: `bits` is out of range.
        MessageError: An integer is out of range, or something else than integers is given.
    """
    check_bits(bits)
    integers = np.asarray(integers).reshape(-1)
    count = integers.size
    if integers.dtype.kind not in "iu":
        raise MessageError(f"Integers are expected, not {integers.dtype}.")
    if count and (int(integers.min()) < 0 or int(integers.max()) >= 2**bits):
        raise MessageError(
            f"Integers from {integers.min()} to {integers.max()} do not fit {bits} unsigned bits."
        )
    groups = -(-count // _GROUP)
    columns = np.zeros((groups, _GROUP), np.uint64)
    columns.reshape(-1)[:count] = integers
    data = np.zeros((groups, bits), np.uint8)
    for integer, byte, shift in _overlaps(bits):
        data[:, byte] |= _shifted(columns[:, integer], -shift).astype(np.uint8)
    return data.tobytes()[: _length(bits, count)]


def unpack(data: bytes, bits: int, count: int) -> np.ndarray:
    """Returns the integers that were packed.

    Args:
        data: The bytes.
        bits: Bits of an integer, 1 to 64.
        count: Number of integers.

    Returns:
        uint64 (count,).

    Raises:
        ConfigError: `bits` is out of range.
        MessageError: The number of bytes is not that of so many integers, or what is left of the
            last byte is not zero.
    """
    check_bits(bits)
    if count < 0 or len(data) != _length(bits, count):
        raise MessageError(
            f"{len(data)} bytes do not hold {count} integers of {bits} bits; expected: "
            f"{_length(bits, max(count, 0))} bytes."
        )
    groups = -(-count // _GROUP)
    padded = np.zeros((groups, bits), np.uint8)
    padded.reshape(-1)[: len(data)] = np.frombuffer(data, np.uint8)
    columns = np.zeros((groups, _GROUP), np.uint64)
    for integer, byte, shift in _overlaps(bits):
        columns[:, integer] |= _shifted(padded[:, byte].astype(np.uint64), shift)
    integers = columns.reshape(-1) & np.uint64(2**bits - 1)
    if integers[count:].any():
        raise MessageError(f"Beyond {count} integers of {bits} bits, the last byte is not zero.")
    return integers[:count]


def _length(bits: int, count: int) -> int:
    return -(-count * bits // 8)


def _overlaps(bits: int) -> Iterator[tuple[int, int, int]]:
    """Yields integers and bytes of a group that overlap, and at which bit the byte begins."""
    for integer in range(_GROUP):
        first = integer * bits
        for byte in range(first // 8, (first + bits - 1) // 8 + 1):
            yield integer, byte, 8 * byte - first


def _shifted(integers: np.ndarray, shift: int) -> np.ndarray:
    """Returns uint64 shifted to the left, or to the right if `shift` is negative."""
    return integers << np.uint64(shift) if shift >= 0 else integers >> np.uint64(-shift)
