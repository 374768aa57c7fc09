"""Rows of arrays as Parquet files, in numbered files of bounded size."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

_GROUP_BYTES = 8 << 20
"""How much is gathered before it is written: small groups of rows are slow to write and read."""


class ParquetFiles:
    """Writes tables of the same columns one after the other, and begins new files as they grow.

    Args:
        folder: Of the files.
        place: Their names in it, with `chunk_index` and `file_index` to be filled in.
        file_mb: After about so many MiB, a new file is begun.
        chunk_files: After so many files, a new chunk is.
    """

    def __init__(self, folder: Path, place: str, file_mb: int, chunk_files: int) -> None:
        self._folder, self._place = folder, place
        self._file_bytes, self._chunk_files = file_mb << 20, chunk_files
        self._count = 0
        self._path: Path | None = None
        self._writer = None
        self._gathered: list[Any] = []
        self._gathered_bytes = 0

    def place(self) -> tuple[int, int]:
        """Returns the chunk and file into which the next table goes."""
        if self._bytes() >= self._file_bytes:
            self.close()
            self._count += 1
        return divmod(self._count, self._chunk_files)

    def write(self, table: Any) -> None:
        """Adds a table."""
        self.place()
        self._gathered.append(table)
        self._gathered_bytes += table.nbytes
        if self._gathered_bytes >= _GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Completes the present file."""
        if self._gathered:
            self._flush()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __enter__(self) -> "ParquetFiles":
        return self

    def __exit__(self, error: type[BaseException] | None, *_) -> None:
        if error is not None:
            self._gathered = []  # it is of no use any more
        self.close()

    def _bytes(self) -> int:
        written = 0 if self._writer is None else self._path.stat().st_size
        return written + self._gathered_bytes

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.concat_tables(self._gathered).combine_chunks()
        self._gathered, self._gathered_bytes = [], 0
        if self._writer is None:
            chunk, file = divmod(self._count, self._chunk_files)
            self._path = self._folder / self._place.format(chunk_index=chunk, file_index=file)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, table.schema, compression="zstd")
        self._writer.write_table(table)


def column(rows: np.ndarray) -> Any:
    """Returns rows (T, ...) as an Arrow array: numbers, lists of fixed length, or nested lists."""
    import pyarrow as pa

    values = pa.array(rows.reshape(-1))
    if rows.ndim == 1:
        return values
    if rows.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(values, rows.shape[1])
    for axis in range(rows.ndim - 1, 0, -1):
        ends = np.arange(0, len(values) + 1, rows.shape[axis], dtype=np.int32)
        values = pa.ListArray.from_arrays(pa.array(ends), values)
    return values


def picture_column(pictures: np.ndarray) -> Any:
    """Returns pictures (T, height, width, 3) uint8 as PNGs, as the `datasets` library has them."""
    import pyarrow as pa
    from PIL import Image

    def png(picture: np.ndarray) -> bytes:
        content = io.BytesIO()
        Image.fromarray(picture).save(content, format="PNG")
        return content.getvalue()

    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    return pa.array([{"bytes": png(picture), "path": None} for picture in pictures], kind)


def write_indexed(path: Path, index: list[str], name: str, values: list[int]) -> None:
    """Writes a table of one column, which pandas reads with `index` as its index."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def described(column: str, kind: str, numpy_kind: str) -> dict[str, Any]:
        return {
            "name": column,
            "field_name": column,
            "pandas_type": kind,
            "numpy_type": numpy_kind,
            "metadata": None,
        }

    table = pa.table({name: pa.array(values, pa.int64()), _INDEX: index})
    pandas = {
        "index_columns": [_INDEX],
        "column_indexes": [],
        "columns": [
            described(name, "int64", "int64"),
            described(_INDEX, "unicode", "object") | {"name": None},
        ],
        "pandas_version": "2.0",
    }
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(pandas)}), path)


_INDEX = "__index_level_0__"
