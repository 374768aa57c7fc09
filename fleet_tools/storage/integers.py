"""Lossless compression of integer columns.

Each column is replaced by its differences of the order (0, 1 or 2) whose numbers are smallest.
Their bytes of equal weight lie side by side. LZMA makes fewer bytes of demonstrations than zstd
and bzip2.
"""

import lzma
from collections.abc import Sequence

import numpy as np

_CONTEXTS = (0, 3, 4)
"""Numbers of high bits of the byte before that LZMA looks at; the best is tried out."""

_ORDERS = 3
_LENGTH, _TAG = 4, 1
"""Bytes before the content of a column: its length, and order, sign and number of planes."""


def packed(columns: Sequence[np.ndarray]) -> bytes:
    """Returns columns as bytes.

    Args:
        columns: (n,) integers of at most 64 bits, fewer than 2**32 each.
    """
    body = b"".join(map(_block, columns))
    found = [
        bytes([bits]) + lzma.compress(body, lzma.FORMAT_RAW, filters=_filters(bits, len(body)))
        for bits in _CONTEXTS
    ]
    return min(found, key=len)


def unpacked(data: bytes, most: int) -> list[np.ndarray]:
    """Returns the columns that `packed` packed, (n,) int64.

    Args:
        data: The bytes, from whomever.
        most: Largest number of integers and columns together.

    Raises:
        ValueError: They are no such columns, or more.
    """
    body = _decompressed(data, (8 + _LENGTH + _TAG) * most)
    columns, offset, left = [], 0, most
    while offset < len(body):
        length = int.from_bytes(body[offset : offset + _LENGTH], "little")
        tag = body[offset + _LENGTH] if offset + _LENGTH < len(body) else 255
        order, signed, planes = tag & 3, bool(tag & 4), tag >> 3
        offset += _LENGTH + _TAG
        left -= length + 1
        if order >= _ORDERS or planes > 8 or left < 0 or offset + planes * length > len(body):
            raise ValueError("its columns are damaged, or too many")
        rows = np.frombuffer(body, np.uint8, planes * length, offset).reshape(planes, length)
        offset += planes * length
        bytes_of = np.zeros((length, 8), np.uint8)
        bytes_of[:, :planes] = rows.T
        numbers = bytes_of.view("<u8").reshape(length)
        if signed:
            numbers = (numbers >> np.uint64(1)) ^ (np.uint64(0) - (numbers & np.uint64(1)))
        column = numbers.view(np.int64)
        for _ in range(order):
            column = np.cumsum(column, dtype=np.int64)  # wraps as the differences did
        columns.append(column)
    return columns


def _block(column: np.ndarray) -> bytes:
    numbers = np.asarray(column).astype(np.int64)
    tried = []
    for order in range(_ORDERS):
        found, signed = _unsigned(numbers)
        tried.append((float(np.log2(found.astype(float) + 1).sum()), order, signed, found))
        numbers = np.diff(numbers, prepend=numbers.dtype.type(0))
    _, order, signed, found = min(tried, key=lambda each: each[:2])
    planes = (int(found.max(initial=0)).bit_length() + 7) // 8
    tag = order | signed << 2 | planes << 3
    rows = found.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :planes].T
    return len(found).to_bytes(_LENGTH, "little") + bytes([tag]) + rows.tobytes()


def _unsigned(numbers: np.ndarray) -> tuple[np.ndarray, bool]:
    """Returns numbers without a sign, 0, -1, 1, -2, ... as 0, 1, 2, 3, ..., and if they had one."""
    signed = bool(numbers.min(initial=0) < 0)
    if signed:
        numbers = (numbers << 1) ^ (numbers >> 63)
    return numbers.view(np.uint64), signed


def _decompressed(data: bytes, most: int) -> bytes:
    bits = data[0] if data else 255
    if bits not in _CONTEXTS:
        raise ValueError("its first bytes are not those of packed columns")
    try:
        decoder = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=_filters(bits, most))
        body = decoder.decompress(data[1:], most + 1)
    except lzma.LZMAError as error:
        raise ValueError(f"its compression is damaged ({error})") from None
    if len(body) > most or not decoder.eof or decoder.unused_data:
        raise ValueError("it is truncated, or too large")
    return body


def _filters(bits: int, size: int) -> list[dict[str, int]]:
    """Returns LZMA's settings; its memory grows with the dictionary, at most 64 MiB."""
    dictionary = min(max(size, 4096), 2**26)
    common = {"id": lzma.FILTER_LZMA1, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": dictionary}
    return [common | {"lc": bits, "lp": 0, "pb": 0}]
