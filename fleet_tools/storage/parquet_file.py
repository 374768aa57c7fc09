"""Safe reading of untrusted Parquet files: a known schema, in bounded memory.

The sizes in a file's footer may lie, and a page of a few bytes may stand for gigabytes. So we read
the header of every page before any page is decompressed, and accept only what `write_table` writes:
one group of rows, zstd, no dictionaries. All pages have checksums. We read headers and footer
ourselves, because pyarrow's access to a damaged footer can end the process.

Format: https://github.com/apache/parquet-format, `parquet.thrift`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from fleet_tools.config.file_access import read_bounded
from fleet_tools.errors import FleetToolsError, shown
from fleet_tools.storage.locked_folder import RESTORE

MAX_BYTES, MAX_FOOTER, MAX_UNPACKED, MAX_VALUES = 2**26, 2**16, 2**27, 2**22
"""Largest sizes of a file, its footer and its pages when decompressed, bytes, and largest number of
values; a result of 480 episodes has half a million bytes and 200,000 values."""

_I32, _I64, _BYTES, _LIST, _STRUCT = 5, 6, 8, 9, 12
"""Types of fields in Thrift's compact protocol."""

_MOST_LEVELS, _MAX_HEADER = 12, 1000
"""Largest number of structs and lists within each other, and size of a page's header, bytes."""

_DATA_PAGE, _ZSTD = 0, 6
_PLAIN, _RLE, _BYTE_STREAM_SPLIT = 0, 3, 9
"""Encodings; others stand for more bytes than they take in a page."""


def write_table(path: Path | IO[bytes], table: Any, split: Sequence[str] = ()) -> None:
    """Stores a table.

    Args:
        path: Path of the new file, or a file that is open.
        table: A `pyarrow.Table`.
        split: Paths of columns of floats whose first bytes are stored together, and so on.
    """
    import pyarrow.parquet as pq

    pq.write_table(
        table,
        path,
        row_group_size=max(len(table), 1),
        compression="zstd",
        compression_level=15,
        use_dictionary=False,
        column_encoding=dict.fromkeys(split, "BYTE_STREAM_SPLIT"),
        write_statistics=False,
        store_schema=False,
        write_page_checksum=True,
    )


def read_table(path: Path, schema: Any, error: type[FleetToolsError]) -> Any:
    """Reads a table that `write_table` stored.

    Args:
        path: Path of the file.
        schema: Its `pyarrow.Schema`.
        error: Class of the errors raised.

    Returns:
        A `pyarrow.Table`, whose text is valid UTF-8.

    Raises:
        FleetToolsError: The file is missing, damaged, too large, or holds other columns.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        content = read_bounded(path, MAX_BYTES)
        length = int.from_bytes(content[-8:-4], "little")
        if content[-4:] != b"PAR1" or length > min(MAX_FOOTER, len(content) - 8):
            raise ValueError("its last bytes are not those of a Parquet file")
        footer, _ = _struct(content[-8 - length : -8])
        if {number for number, _ in footer} - {1, 2, 3, 4, 6, 7}:
            raise ValueError("it has unexpected metadata")
        file = pq.ParquetFile(
            pa.BufferReader(content),
            thrift_string_size_limit=MAX_FOOTER,
            thrift_container_size_limit=MAX_FOOTER,
            page_checksum_verification=True,
            pre_buffer=False,
        )
        _require_schema(file.schema_arrow, schema)
        _require_bounded(content, footer)
        table = file.read(use_threads=False)
        table.validate(full=True)
    except (OSError, ValueError, LookupError, TypeError, pa.ArrowException) as raised:
        reason = raised.strerror if isinstance(raised, OSError) and raised.strerror else raised
        if isinstance(raised, LookupError | TypeError):
            reason = "its footer or the header of a page is incomplete"
        raise error(f"{path} is damaged: {str(reason).removesuffix('.')}. {RESTORE}") from raised
    return table


def _require_schema(found: Any, expected: Any) -> None:
    if found.equals(expected):
        return
    names, known = {*found.names}, {*expected.names}
    other = [
        name
        for name in expected.names
        if found.names.count(name) == 1 and not found.field(name).equals(expected.field(name))
    ]
    parts = {
        "it lacks": sorted(known - names),
        "it also has": sorted(names - known),
        "another type is expected of": other,
    }
    told = [f"{what} {', '.join(map(shown, each[:5]))}" for what, each in parts.items() if each]
    reason = "; ".join(told) or "they are repeated, or their order differs"
    raise ValueError(f"its columns differ from the expected ones: {reason}")


def _require_bounded(content: bytes, footer: "_Struct") -> None:
    """Walks through all pages as Arrow does, without decompressing one."""
    groups = footer[4, _LIST]
    if len(groups) != 1 or groups[0][3, _I64] != footer[3, _I64]:
        raise ValueError("it has more than one row group")
    values = unpacked = 0
    for column in groups[0][1, _LIST]:
        chunk = column[3, _STRUCT]
        name = b".".join(chunk[3, _LIST]).decode()
        at, left = chunk[9, _I64], chunk[5, _I64]
        end = at + chunk[7, _I64]
        if {number for number, _ in column} - {2, 3} or (11, _I64) in chunk:
            raise ValueError(f"{name} has another storage type than results have")
        if chunk[4, _I32] != _ZSTD or at < 0:
            raise ValueError(f"{name} has another compression than results have")
        if "." not in name and left != footer[3, _I64]:
            raise ValueError(f"{name} has {left} values in {footer[3, _I64]} rows")
        while at < end:
            page, length = _struct(content[at : at + _MAX_HEADER])
            size, packed = page[2, _I32], page[3, _I32]
            header = page.get((5, _STRUCT), {})
            if page[1, _I32] != _DATA_PAGE or min(size, packed, header.get((1, _I32), -1)) < 0:
                raise ValueError(f"{name} has a page of another kind at byte {at}")
            if {header[3, _I32], header[4, _I32]} != {_RLE} or header[2, _I32] not in (
                _PLAIN,
                _RLE,
                _BYTE_STREAM_SPLIT,
            ):
                raise ValueError(f"{name} has a page of another encoding at byte {at}")
            at, left = at + length + packed, left - header[1, _I32]
            values, unpacked = values + header[1, _I32], unpacked + size
            if values > MAX_VALUES or unpacked > MAX_UNPACKED:
                raise ValueError(
                    f"it has more than {MAX_VALUES:,} values, or {MAX_UNPACKED:,} bytes when "
                    "decompressed"
                )
        if at != end or left:
            raise ValueError(f"{name} has pages that differ from its footer")


_Struct = dict[tuple[int, int], Any]
"""Fields of a struct by number and type; a reader skips a field of another type."""


def _struct(content: bytes, at: int = 0, levels: int = _MOST_LEVELS) -> tuple[_Struct, int]:
    """Reads a struct of Thrift's compact protocol, and returns where it ends, too."""
    if not levels:
        raise ValueError("a struct is nested too deeply")
    fields, number = _Struct(), 0
    while head := content[at]:
        if not head >> 4:
            raise ValueError(f"a struct has an unknown field at byte {at}")
        number += head >> 4
        fields[number, head & 15], at = _value(content, at + 1, head & 15, levels - 1)
    return fields, at + 1


def _value(content: bytes, at: int, kind: int, levels: int) -> tuple[Any, int]:
    if kind in (1, 2):  # true and false, which take no byte more
        return kind == 1, at
    if kind in (4, _I32, _I64):
        number, at = _varint(content, at)
        return number >> 1 ^ -(number & 1), at
    if kind == _BYTES:
        size, at = _varint(content, at)
        return content[at : at + size], at + size
    if kind == _STRUCT:
        return _struct(content, at, levels)
    if kind != _LIST or content[at] & 15 < 4 or not levels:
        raise ValueError(f"a struct has an unknown type at byte {at}")
    size, kind = content[at] >> 4, content[at] & 15
    size, at = _varint(content, at + 1) if size == 15 else (size, at + 1)
    values = []
    for _ in range(size):
        value, at = _value(content, at, kind, levels - 1)
        values.append(value)
    return values, at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        number |= (content[at] & 127) << shift
        at += 1
        if content[at - 1] < 128:
            return number, at
    raise ValueError(f"a number does not end at byte {at}")
