"""Columns of LeRobot's Parquet files, which are numbered and of bounded size; their statistics."""

import io
import json
from pathlib import Path
from typing import Any, Self

import numpy as np

_GROUP_BYTES = 8 << 20
"""Bytes collected before they are written: small groups of rows are slow to write and read."""

_INDEX = "__index_level_0__"


class ParquetFiles:
    """Writes tables of the same columns, and starts new files as they grow.

    Args:
        folder: Folder of the files.
        file_name: Name of a file in the folder, with fields `chunk_index` and `file_index`.
        file_mb: Approximate size after which a new file is started, MiB.
        chunk_files: Number of files of a chunk.
    """

    def __init__(self, folder: Path, file_name: str, file_mb: int, chunk_files: int) -> None:
        self._folder, self._file_name = folder, file_name
        self._file_bytes, self._chunk_files = file_mb << 20, chunk_files
        self._count = 0  # of complete files
        self._present: tuple[Path, Any] | None = None  # the present file and its writer
        self._buffer: list[Any] = []
        self._buffered_bytes = 0

    def next_location(self) -> tuple[int, int]:
        """Returns the indices of the chunk and of the file into which the next table goes."""
        if self._bytes() >= self._file_bytes:
            self.close()
            self._count += 1
        return divmod(self._count, self._chunk_files)

    def write(self, table: Any) -> None:
        """Adds a table of Arrow."""
        self.next_location()
        self._buffer.append(table)
        self._buffered_bytes += table.nbytes
        if self._buffered_bytes >= _GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Completes the present file."""
        if self._buffer:
            self._flush()
        if self._present is not None:
            _, writer = self._present
            writer.close()
            self._present = None

    def __enter__(self) -> Self:
        """Returns the writer itself."""
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Completes the present file; after an error, the collected tables are dropped."""
        if error is not None:
            self._buffer = []
        self.close()

    def _bytes(self) -> int:
        written = 0 if self._present is None else self._present[0].stat().st_size
        return written + self._buffered_bytes

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.concat_tables(self._buffer).combine_chunks()
        self._buffer, self._buffered_bytes = [], 0
        if self._present is None:
            chunk, file = divmod(self._count, self._chunk_files)
            path = self._folder / self._file_name.format(chunk_index=chunk, file_index=file)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._present = path, pq.ParquetWriter(path, table.schema, compression="zstd")
        _, writer = self._present
        writer.write_table(table)


def column(rows: np.ndarray) -> Any:
    """Returns rows (T, ...) as an Arrow array: numbers, lists of fixed length, or nested lists."""
    import pyarrow as pa

    values = pa.array(rows.reshape(-1))
    if rows.shape[1:] in ((), (1,)):  # LeRobot's arrays of shape (1,) are numbers
        return values
    if rows.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(values, rows.shape[1])
    for axis in range(rows.ndim - 1, 0, -1):
        ends = np.arange(0, len(values) + 1, rows.shape[axis], dtype=np.int32)
        values = pa.ListArray.from_arrays(pa.array(ends), values)
    return values


def image_column(images: np.ndarray) -> Any:
    """Returns images, (T, height, width, 3) uint8, as PNGs as the library `datasets` reads them."""
    import pyarrow as pa
    from PIL import Image

    def png(image: np.ndarray) -> bytes:
        content = io.BytesIO()
        Image.fromarray(image).save(content, format="PNG")
        return content.getvalue()

    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    return pa.array([{"bytes": png(image), "path": None} for image in images], kind)


def write_indexed(path: Path, index: list[str], name: str, values: list[int]) -> None:
    """Writes a table of one column, whose index pandas reads.

    Args:
        path: Path of the file.
        index: Index of each row.
        name: Name of the column.
        values: The column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    def description(column: str, kind: str, numpy_kind: str) -> dict[str, Any]:
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
            description(name, "int64", "int64"),
            description(_INDEX, "unicode", "object") | {"name": None},
        ],
        "pandas_version": "2.0",
    }
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(pandas)}), path)


Stats = dict[str, np.ndarray]

_QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}


def vector_stats(rows: np.ndarray) -> Stats:
    """Returns the statistics of the entries along the last axis of (T, ..., n), or of (T,)."""
    numbers = np.asarray(rows, np.float64).reshape(-1, rows.shape[-1] if rows.ndim > 1 else 1)
    low, high = numbers.min(axis=0), numbers.max(axis=0)
    quantiles = np.quantile(numbers, list(_QUANTILES.values()), axis=0)
    return {
        "min": low,
        "max": high,
        "mean": np.clip(numbers.mean(axis=0), low, high),
        # That of a constant may be a rounding error, by which learners would divide.
        "std": np.where(low < high, numbers.std(axis=0), 0.0),
        "count": np.array([len(rows)]),
        **dict(zip(_QUANTILES, quantiles, strict=True)),
    }


def color_counts(images: np.ndarray) -> np.ndarray:
    """Returns how often each channel of images, (T, height, width, 3) uint8, has each value.

    Returns:
        (3, 256) int64; the counts of several sets of images can be added.
    """
    return np.stack([np.bincount(images[..., c].ravel(), minlength=256) for c in range(3)])


def image_stats(counts: np.ndarray, images: int) -> Stats:
    """Returns the statistics of all pixels, without sampling.

    Args:
        counts: See `color_counts`.
        images: Number of images.

    Returns:
        Statistics of channels in [0, 1], (3, 1, 1) each; `count` is the number of images.
    """
    channels = [_stats_of_counts(channel) for channel in counts]
    stats = {
        name: np.reshape([each[name] for each in channels], (3, 1, 1)) / 255 for name in channels[0]
    }
    return stats | {"count": np.array([images])}


def _stats_of_counts(counts: np.ndarray) -> dict[str, float]:
    """Returns the statistics of whole numbers, by how often each of 0, 1, 2, ... is there."""
    values, total, ranks = np.arange(len(counts)), counts.sum(), counts.cumsum()
    mean = counts @ values / total
    stats = {
        "min": np.flatnonzero(counts)[0],
        "max": np.flatnonzero(counts)[-1],
        "mean": mean,
        "std": np.sqrt(counts @ (values - mean) ** 2 / total),
    }
    for name, q in _QUANTILES.items():  # interpolated between ranks, as `numpy.quantile` does
        lower, part = divmod(q * (total - 1), 1)
        low, high = np.searchsorted(ranks, [lower, min(lower + 1, total - 1)], side="right")
        stats[name] = low + part * (high - low)
    return stats
