"""Parquet columns are lossless, and new files are started as files grow."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp


@given(
    st.sampled_from(["float32", "float64", "uint8", "int64", "bool"]).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(max_dims=4, max_side=4))
    )
)
def test_columns_are_lossless(rows: np.ndarray) -> None:
    pytest.importorskip("pyarrow")
    from fleet_tools.dataset.export.lerobot_columns import column

    values = column(rows)
    assert len(values) == len(rows)
    for _ in range(rows.ndim - 1):
        values = values.flatten()
    np.testing.assert_array_equal(values.to_numpy(zero_copy_only=False), rows.reshape(-1))


def test_new_files_are_started_as_files_grow(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    from fleet_tools.dataset.export.lerobot_columns import ParquetFiles

    generator, locations = np.random.default_rng(0), []
    with ParquetFiles(tmp_path, "{chunk_index}/{file_index}.parquet", 1, 2) as files:
        for _ in range(5):
            locations.append(files.next_location())
            files.write(pa.table({"x": generator.normal(size=100_000)}))  # 0.8 MB
    assert locations == [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0)]
    rows = {
        (chunk, file): pq.read_metadata(tmp_path / f"{chunk}/{file}.parquet").num_rows
        for chunk, file in locations
    }
    assert rows == {(0, 0): 200_000, (0, 1): 200_000, (1, 0): 100_000}
