"""Damaged and hostile datasets: a typed error or the same data, never anything else."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.damage import (
    STRUCTURES,
    damaged,
    damaged_json,
    relist,
    rewrite_lines,
)
from support.dataset_readers import read_episodes, read_samples, read_summary
from support.small_datasets import OBSERVATION, Drawn, Layout, a_header, write

from fleet_tools.dataset import Dataset
from fleet_tools.dataset.export.exporting import export_dataset
from fleet_tools.dataset.stored_episode import file_digest
from fleet_tools.errors import DatasetError, FleetToolsError

FIRST = "episodes/episode_000000.hdf5"
WIDE: Layout = {
    **OBSERVATION,
    "wrist_depth": ((4, 3), "float32"),
    "wrist_segmentation": ((4, 3), "uint8"),
}

Reader = Callable[[Path], Any]


@pytest.fixture(name="intact", scope="module")
def _intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "intact"
    write(folder, Drawn([3, 2], [True, True], 0))
    return folder


@contextmanager
def a_copy(folder: Path) -> Iterator[Path]:
    """Copies a dataset to a folder of its own."""
    with tempfile.TemporaryDirectory() as parent:
        copy = Path(parent) / "copy"
        shutil.copytree(folder, copy)
        yield copy


@pytest.fixture(name="copy")
def _copy(intact: Path) -> Iterator[Path]:
    with a_copy(intact) as copy:
        yield copy


def stored(file: h5py.File, name: str) -> h5py.Dataset:
    array = file[f"episode_0/{name}"]
    assert isinstance(array, h5py.Dataset)
    return array


def read_by_view(format_name: str) -> Reader:
    def read(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent) as output:
            dataset = Dataset(folder)
            export_dataset(dataset, format_name, Path(output) / "view", failures=True)

    return read


READERS: dict[str, Reader] = {
    "episodes": read_episodes,
    "samples": read_samples,
    "minari": read_by_view("minari"),
    "robomimic": read_by_view("robomimic"),
}
each_reader = pytest.mark.parametrize("reader", READERS.values(), ids=READERS)


# --- Bytes ----------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32), check=st.booleans())
def test_behind_a_forged_digest_damaged_bytes_raise_nothing_but_typed_errors(intact, seed, check):
    with a_copy(intact) as folder:
        path = folder / FIRST
        path.write_bytes(damaged(path.read_bytes(), np.random.default_rng(seed)))
        relist(folder)
        for read in (read_episodes, read_samples):
            try:
                read(folder, check)
            except DatasetError as error:
                assert "000000.hdf5" in str(error)


def test_a_heap_that_hdf5_reads_forever_is_refused(copy):
    with h5py.File(copy / FIRST, "r+") as file:
        file.require_group("episode_0").attrs["more"] = "a text of any length"
    content = bytearray((copy / FIRST).read_bytes())
    begin = content.index(b"GCOL") + 16
    content[begin : begin + 64] = bytes(64)  # an object of no size
    (copy / FIRST).write_bytes(content)
    relist(copy)
    for read in READERS.values():
        with pytest.raises(DatasetError, match="global heap"):
            read(copy)


# --- Structures -----------------------------------------------------------------------------


@each_reader
@pytest.mark.parametrize("name", ["actions", "observations/joint_position"])
@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda each: each.__name__)
def test_hostile_structures_are_refused(copy, structure, name, reader):
    outside = copy.parent / "secret"
    outside.write_bytes(bytes(10_000))
    with h5py.File(copy / FIRST, "r+") as file:
        structure(file.require_group("episode_0"), name, outside)
    relist(copy)
    with pytest.raises(DatasetError, match=r"episode_000000\.hdf5 .*collect --tool"):
        reader(copy)


@pytest.mark.parametrize("attribute", ["outcome", "error", "scene"])
@pytest.mark.parametrize(
    "value",
    [
        None,
        7.0,
        "x",
        np.array([b"{}"]),
        *map(np.bytes_, (b"\xff", b"{", b"[]", b'"\\ud800"', b"[" * 9000)),
    ],
)
def test_hostile_attributes_are_refused(copy, attribute, value):
    with h5py.File(copy / FIRST, "r+") as file:
        group = file.require_group("episode_0")
        del group.attrs[attribute]
        if value is not None:
            group.attrs[attribute] = value
    relist(copy)
    with pytest.raises(DatasetError, match=r"episode_000000\.hdf5 "):
        Dataset(copy).episode(0)


# --- Values ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("actions", np.nan, "'actions' holds NaN"),
        ("actions", 1.5, r"'actions' holds numbers from .* to 1.5, not all in \[-1, 1\]"),
        ("rewards", np.inf, "'rewards' holds numbers from 0 to inf"),
        ("observations/joint_position", np.nan, "joint_position' holds NaN"),
        ("observations/joint_position", -np.inf, "joint_position' holds numbers from -inf"),
        ("observations/wrist_depth", -0.5, "wrist_depth' holds numbers from -0.5"),
        ("observations/wrist_depth", np.nan, "wrist_depth' holds NaN"),
        ("observations/wrist_segmentation", 99, "wrist_segmentation' holds .* to 99"),
    ],
)
def test_impossible_values_are_refused_unless_unchecked(tmp_path, name, value, message):
    write_wide(tmp_path)
    with h5py.File(tmp_path / FIRST, "r+") as file:
        stored(file, name)[0] = value
    relist(tmp_path)
    with pytest.raises(DatasetError, match=message):
        read_episodes(tmp_path)
    read_episodes(tmp_path, check=False)
    if name != "rewards":
        with pytest.raises(DatasetError, match=message):
            read_samples(tmp_path)
        read_samples(tmp_path, check=False)


def write_wide(folder: Path) -> None:
    """Writes a dataset with images of all channels, some of infinite depth."""
    dataset = write(folder, Drawn([3], [True], 0), a_header(WIDE))
    with h5py.File(dataset.path(dataset.stored()[0]), "r+") as file:
        stored(file, "observations/wrist_depth")[:] = np.inf
        stored(file, "observations/wrist_segmentation")[:] = 1
    relist(folder)
    read_episodes(folder)
    read_samples(folder)


def test_a_flag_is_true_or_false(copy):
    with h5py.File(copy / FIRST) as file:
        offset = stored(file, "terminations").id.get_offset()
    content = bytearray((copy / FIRST).read_bytes())
    content[offset] = 37
    (copy / FIRST).write_bytes(content)
    relist(copy)
    with pytest.raises(DatasetError, match="'terminated' holds numbers from 0 to 37"):
        Dataset(copy).episode(0)


# --- Manifest and header --------------------------------------------------------------------


def test_digests_are_listed_and_required_and_can_be_skipped(copy, intact):
    dataset = Dataset(intact)
    for record in dataset.stored():
        assert record.file_digest == file_digest(dataset.path(record))
    rewrite_lines(copy / "manifest.jsonl", lambda line: line | {"file_digest": None})
    with pytest.raises(DatasetError, match="`file` and its digest"):
        Dataset(copy)
    rewrite_lines(copy / "manifest.jsonl", lambda line: line | {"file_digest": "0" * 32})
    assert read_episodes(copy, check=False) == read_episodes(intact)
    assert read_samples(copy, check=False) == read_samples(intact)
    with pytest.raises(DatasetError, match=f"expected {'0' * 32}"):
        read_episodes(copy)


@pytest.mark.parametrize(
    "file", ["/etc/passwd", "../secret.hdf5", "episodes/../x.hdf5", "dataset.json", "episodes/a\0"]
)
def test_paths_out_of_the_folder_are_refused(copy, file):
    rewrite_lines(copy / "manifest.jsonl", lambda line: line | {"file": file})
    with pytest.raises(DatasetError, match="file: String should match pattern"):
        Dataset(copy)


@each_reader
def test_links_out_of_the_folder_are_refused_and_what_is_no_file_is_not_waited_for(copy, reader):
    (copy / FIRST).rename(copy.parent / "outside.hdf5")
    (copy / FIRST).symlink_to(copy.parent / "outside.hdf5")
    with pytest.raises(DatasetError, match="leads out of the dataset"):
        reader(copy)
    (copy / FIRST).unlink()
    os.mkfifo(copy / FIRST)
    with pytest.raises(DatasetError, match="is missing"):
        reader(copy)


def test_the_manifest_and_the_file_agree(copy, intact):
    for other in ({"outcome": "time_limit"}, {"state_digest": "0" * 16}, {"steps": 2}):
        rewrite_lines(copy / "manifest.jsonl", lambda line, other=other: line | other)
        for read in (read_episodes, read_samples):
            with pytest.raises(DatasetError, match=r"episode_00000\d\.hdf5 is "):
                read(copy)
        shutil.copy(intact / "manifest.jsonl", copy)
    rewrite_lines(copy / "manifest.jsonl", lambda line: line | {"attempt": 4})
    with pytest.raises(DatasetError, match="lists attempt 4 twice"):
        Dataset(copy)


@given(seed=st.integers(0, 2**32), name=st.sampled_from(["dataset.json", "manifest.jsonl"]))
def test_damaged_documents_raise_nothing_but_typed_errors(intact, seed, name):
    generator = np.random.default_rng(seed)
    with a_copy(intact) as folder:
        path = folder / name
        if generator.integers(2):
            path.write_bytes(damaged(path.read_bytes(), generator))
        else:
            lines = path.read_text().splitlines() if name != "dataset.json" else [path.read_text()]
            lines[0] = damaged_json(lines[0], generator)
            path.write_text("\n".join(lines) + "\n")
        for read in (read_summary, *READERS.values()):
            with suppress(FleetToolsError):
                read(folder)
