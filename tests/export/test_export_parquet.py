"""Columns lose nothing, and files are begun as they grow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp


@given(st.sampled_from(["float32", "float64", "uint8", "int64", "bool"]).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(max_dims=4, max_side=4))))  # fmt: skip
def test_columns_lose_nothing(rows):
    pytest.importorskip("pyarrow")
    from fleet_tools.dataset.export.parquet import column

    values = column(rows)
    assert len(values) == len(rows)
    for _ in range(rows.ndim - 1):
        values = values.flatten()
    np.testing.assert_array_equal(values.to_numpy(zero_copy_only=False), rows.reshape(-1))


def test_files_are_begun_as_they_grow(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    from fleet_tools.dataset.export.parquet import ParquetFiles

    generator, places = np.random.default_rng(0), []
    with ParquetFiles(tmp_path, "{chunk_index}/{file_index}.parquet", 1, 2) as files:
        for _ in range(5):
            places.append(files.place())
            files.write(pa.table({"x": generator.normal(size=100_000)}))  # 0.8 MB
    assert places == [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0)]
    rows = {place: pq.read_metadata(tmp_path / f"{place[0]}/{place[1]}.parquet").num_rows
            for place in places}  # fmt: skip
    assert rows == {(0, 0): 200_000, (0, 1): 200_000, (1, 0): 100_000}
