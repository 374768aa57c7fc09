"""All formats: counts, errors, unchanged files; and the command."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import h5py
import pytest
from support.exported import names_below, successes
from support.labelled import of_export, of_samples, random_dataset
from support.small_datasets import OBSERVATION, Drawn, a_header, write

from fleet_tools.dataset import Dataset, DatasetWriter
from fleet_tools.dataset.__main__ import main
from fleet_tools.dataset.export.exporting import FORMATS, export_dataset
from fleet_tools.dataset.header import Header
from fleet_tools.errors import DatasetError, MissingLibraryError, UnknownNameError
from fleet_tools.registration import TOOL_USE
from fleet_tools.utils import progress

each_format = pytest.mark.parametrize("format_name", [name for name in FORMATS if name != "ply"])
"""Formats of whole episodes; that of clouds alone is in `test_formats`."""


@each_format
def test_counts_bytes_and_omissions(format_name, collected, tmp_path):
    dataset = collected("state")
    export = export_dataset(dataset, format_name, tmp_path / "out")
    assert export.episodes == 2
    assert export.steps == sum(map(len, successes(dataset)))
    files = [path for path in [tmp_path / "out", *tmp_path.rglob("*")] if path.is_file()]
    assert export.bytes == sum(path.stat().st_size for path in set(files))
    for omission in (
        "1 failed episodes (--all exports them, too)",
        "1 episodes without a single step",
        "1 attempts that only the manifest lists",
    ):
        assert omission in export.left_out
    complete = export_dataset(dataset, format_name, tmp_path / "complete", failures=True)
    assert complete.episodes == 3
    assert not any("--all" in omission for omission in complete.left_out)


@each_format
def test_existing_output_is_left_unchanged(format_name, collected, tmp_path):
    output = tmp_path / "out"
    export_dataset(collected("state"), format_name, output)
    before = names_below(tmp_path)
    with pytest.raises(DatasetError, match=r"exists already\. Give another --output"):
        export_dataset(collected("state"), format_name, output)
    assert names_below(tmp_path) == before


@each_format
def test_a_damaged_episode_is_named_and_nothing_is_left_behind(format_name, collected, tmp_path):
    shutil.copytree(collected("state").folder, tmp_path / "set")
    dataset = Dataset(tmp_path / "set")
    last = dataset.path(dataset.stored()[-1])
    last.write_bytes(last.read_bytes()[:-8])
    before = names_below(tmp_path)
    with pytest.raises(DatasetError, match=r"episode_000004\.hdf5 is damaged(.|\n)*makes it again"):
        export_dataset(dataset, format_name, tmp_path / "new" / "out")
    last.unlink()
    with pytest.raises(DatasetError, match=r"episode_000004\.hdf5 is missing"):
        export_dataset(dataset, format_name, tmp_path / "new" / "out")
    assert names_below(tmp_path) == [name for name in before if "000004" not in name]


@pytest.mark.parametrize(("format_name", "module"), [("lerobot", "pyarrow"), ("zarr", "zarr")])
def test_a_missing_library_is_named_before_anything_is_written(
    format_name, module, collected, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingLibraryError, match=r"\[export\]"):
        export_dataset(collected("state"), format_name, tmp_path / "out")
    assert names_below(tmp_path) == []


def test_an_unknown_format_names_the_nearest_and_nothing_to_export_is_an_error(collected, tmp_path):
    with pytest.raises(UnknownNameError, match="Did you mean 'minari'"):
        export_dataset(collected("state"), "minary", tmp_path / "out")
    with DatasetWriter(tmp_path / "set", collected("state").header) as writer:
        writer.add(collected("state").manifest()[2])
    with pytest.raises(DatasetError, match="no episode to export"):
        export_dataset(Dataset(tmp_path / "set"), "zarr")
    assert names_below(tmp_path / "set") == ["dataset.json", "episodes", "manifest.jsonl"]


def test_the_command_reports_its_export(collected, tmp_path, capsys):
    folder, output = str(collected("state").folder), tmp_path / "out"
    arguments = ["export", folder, "--to", "minari", "--output"]
    assert main([*arguments, str(output)]) == 0
    text = capsys.readouterr().out
    assert "minari: 2 episodes" in text
    assert "left out: " in text
    assert f"a view of {folder}, whose files it needs" in text
    assert f"MINARI_DATASETS_PATH={output}" in text
    assert main([*arguments, str(tmp_path / "complete"), "--all", "--json"]) == 0
    export = json.loads(capsys.readouterr().out)
    assert (export["format"], export["episodes"]) == ("minari", 3)
    assert export["view_of"] == [folder]
    assert Path(export["output"]).is_dir()
    assert main([*arguments, str(tmp_path / "silent"), "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_an_export_says_how_far_it_is_where_no_terminal_is(
    collected, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("zarr")
    monkeypatch.setattr(progress, "LINE_SECONDS", 1e-3)
    arguments = ["export", str(collected("state").folder), "--to", "zarr", "--output"]
    assert main([*arguments, str(tmp_path / "told.zarr")]) == 0
    assert re.search(r"^episode 2/2 after 0:\d\d$", capsys.readouterr().err, re.MULTILINE)
    assert main([*arguments, str(tmp_path / "silent.zarr"), "--quiet"]) == 0
    assert capsys.readouterr().err == ""


# --- Several datasets ---------------------------------------------------------------------------


def changed(header: Header, **fields: Any) -> Header:
    """Returns a header with other fields of the action, the task or the environment's kwargs."""
    action = header.action.model_copy(update=fields.pop("action", {}))
    spec = header.env_spec
    spec = spec.model_copy(update={"kwargs": {**spec.kwargs, **fields.pop("kwargs", {})}})
    return header.model_copy(update={"action": action, "env_spec": spec, **fields})


@each_format
@pytest.mark.parametrize("whole", [False, True])
def test_datasets_together_are_read_as_samples_reads_them(format_name, whole, tmp_path):
    datasets = [random_dataset(tmp_path / name, seed) for seed, name in enumerate("abc")]
    export = export_dataset(datasets, format_name, tmp_path / "out", whole=whole)
    read = [step.content() for steps in of_export(format_name, tmp_path / "out") for step in steps]
    expected = of_samples(*(tmp_path / name for name in "abc"))
    assert read == [step.content() for step in expected if whole or step.imitate]
    assert export.episodes == 9 and export.pieces == len(of_export(format_name, tmp_path / "out"))
    if format_name == "robomimic":
        with h5py.File(tmp_path / "out") as file:
            for mask in ("train", "valid"):  # neither lacks a dataset
                demos = [file[f"data/{name.decode()}"] for name in file[f"mask/{mask}"][()]]  # pyright: ignore
                assert {str(demo.attrs["dataset"]) for demo in demos} == {"0", "1", "2"}
            folders = [each["folder"] for each in json.loads(file["data"].attrs["fleet_tools"])]  # pyright: ignore
        assert folders == ["a", "b", "c"]


def test_tasks_of_several_datasets_are_told_apart(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    headers = [a_header(), a_header(), changed(a_header(), task=TOOL_USE.read_task("knife"))]
    datasets = [
        write(tmp_path / f"set{k}", Drawn([2, 3], [True] * 2, k), header)
        for k, header in enumerate(headers)
    ]
    export_dataset(datasets, "lerobot", tmp_path / "out")
    tasks = pq.read_table(tmp_path / "out/meta/tasks.parquet").to_pydict()
    texts = [header.task_description() for header in headers]
    named = dict(zip(tasks["__index_level_0__"], tasks["task_index"], strict=True))
    assert named == {texts[0]: 0, texts[2]: 1}
    rows = pq.read_table(tmp_path / "out/meta/episodes").to_pylist()
    steps = pq.read_table(tmp_path / "out/data").to_pydict()
    for row in rows:
        assert row["tasks"] == [texts[row["dataset"]]]
        here = slice(row["dataset_from_index"], row["dataset_to_index"])
        assert set(steps["task_index"][here]) == {named[row["tasks"][0]]}
    for format_name in ("minari", "robomimic"):
        with pytest.raises(DatasetError, match=r"fit into lerobot, ply, zarr(.|\n)*task is 'knife"):
            export_dataset(datasets, format_name, tmp_path / format_name)
        assert not (tmp_path / format_name).exists()


MISFITS = {
    "the rate_hz of 'action' is 7.5, not 6.0": {"action": {"rate_hz": 7.5}},
    "the unit of 'action' is 'mm, deg', not 'm, rad'": {"action": {"unit": "mm, deg"}},
    "the robot is 'ur5e', not 'panda'": {"kwargs": {"robot": "ur5e"}},
    "obs_mode is 'rgbd', not 'state'": {"kwargs": {"obs_mode": "rgbd"}},
    "there is 'more'": {
        "observation": a_header().observation | {"more": a_header().observation["ticks"]}
    },
    "the shape of 'wrist_rgb' is (8, 6, 3), not (4, 3, 3)": {
        "observation": a_header({**OBSERVATION, "wrist_rgb": ((8, 6, 3), "uint8")}).observation
    },
}


@each_format
def test_datasets_that_do_not_fit_are_refused_with_all_that_differs(format_name, tmp_path):
    first = write(tmp_path / "set", Drawn([2], [True], 0))
    others = [
        write(tmp_path / f"other{k}", Drawn([2], [True], 0), changed(a_header(), **fields))
        for k, fields in enumerate(MISFITS.values())
    ]
    before = names_below(tmp_path)
    with pytest.raises(DatasetError) as caught:
        export_dataset([first, *others], format_name, tmp_path / "out")
    for other, misfit in zip(others, MISFITS, strict=True):
        (line,) = (line for line in str(caught.value).splitlines() if f"{other.folder}:" in line)
        assert misfit in line
    assert names_below(tmp_path) == before


def test_what_cannot_be_exported_together_is_refused_and_nothing_is_left(tmp_path, capsys):
    one, two = (random_dataset(tmp_path / name) for name in ("one", "two"))
    with DatasetWriter(tmp_path / "empty", one.header):
        pass
    arguments = ["export", str(one.folder), str(two.folder), "--to", "robomimic"]
    before = names_below(tmp_path)
    assert main(arguments) == 2
    assert "Give --output" in capsys.readouterr().err
    arguments += ["--output", str(tmp_path / "out")]
    with pytest.raises(DatasetError, match=r"two is given twice"):
        export_dataset([one, two, Dataset(tmp_path / "empty/../two")], "zarr", tmp_path / "out")
    with pytest.raises(DatasetError, match=r"empty holds no episode to export"):
        export_dataset([one, Dataset(tmp_path / "empty")], "zarr", tmp_path / "out")
    assert names_below(tmp_path) == before
    damaged = two.path(two.stored()[-1])
    damaged.write_bytes(damaged.read_bytes()[:-8])
    for format_name in FORMATS:
        if format_name != "ply":
            with pytest.raises(DatasetError, match=r"two/episodes/episode_000003\.hdf5 is dam"):
                export_dataset([one, two], format_name, tmp_path / "out")
    assert names_below(tmp_path) == before
    assert main(["export", str(one.folder), "--to", "robomimic", "--output", str(one.folder)]) == 2
    assert "exists already" in capsys.readouterr().err
