"""All formats: counts, errors, unchanged files; and the command."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from support.exported import names_below, successes

from fleet_tools.dataset import Dataset, DatasetWriter
from fleet_tools.dataset.__main__ import main
from fleet_tools.dataset.export.exporting import FORMATS, export_dataset
from fleet_tools.errors import DatasetError, MissingLibraryError, UnknownNameError
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
