"""Every format: what is counted, refused, and left as it was; and the command."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from exported import names_below, successes

from fleet_tools.dataset import Dataset, DatasetWriter
from fleet_tools.dataset.__main__ import main
from fleet_tools.dataset.export import FORMATS, export_dataset
from fleet_tools.errors import DatasetError, MissingLibraryError, UnknownNameError

each_format = pytest.mark.parametrize("form", FORMATS)


@each_format
def test_counts_bytes_and_what_is_left_out(form, collected, tmp_path):
    dataset = collected("state")
    made = export_dataset(dataset, form, tmp_path / "out")
    assert made.episodes == 2
    assert made.steps == sum(map(len, successes(dataset)))
    files = [path for path in [tmp_path / "out", *tmp_path.rglob("*")] if path.is_file()]
    assert made.bytes == sum(path.stat().st_size for path in set(files))
    for fact in (
        "1 failed episodes (--all takes them, too)",
        "1 episodes without a single step",
        "1 attempts of which only the manifest knows",
    ):
        assert fact in made.left_out
    every = export_dataset(dataset, form, tmp_path / "every", failures=True)
    assert every.episodes == 3
    assert not any("--all" in fact for fact in every.left_out)


@each_format
def test_existing_output_is_left_as_it_is(form, collected, tmp_path):
    output = tmp_path / "out"
    export_dataset(collected("state"), form, output)
    before = names_below(tmp_path)
    with pytest.raises(DatasetError, match=r"exists already\. Give another --output"):
        export_dataset(collected("state"), form, output)
    assert names_below(tmp_path) == before


@each_format
def test_damaged_episode_is_named_and_nothing_is_left_behind(form, collected, tmp_path):
    shutil.copytree(collected("state").folder, tmp_path / "set")
    dataset = Dataset(tmp_path / "set")
    last = tmp_path / "set" / dataset.stored()[-1].file
    last.write_bytes(last.read_bytes()[:-8])
    before = names_below(tmp_path)
    with pytest.raises(DatasetError, match=r"episode_000004\.hdf5 is damaged(.|\n)*makes it again"):
        export_dataset(dataset, form, tmp_path / "new" / "out")
    last.unlink()
    with pytest.raises(DatasetError, match=r"episode_000004\.hdf5 is missing"):
        export_dataset(dataset, form, tmp_path / "new" / "out")
    assert names_below(tmp_path) == [name for name in before if "000004" not in name]


@pytest.mark.parametrize(("form", "module"), [("lerobot", "pyarrow"), ("zarr", "zarr")])
def test_missing_library_is_named_before_anything_is_made(
    form, module, collected, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingLibraryError, match=r"\[export\]"):
        export_dataset(collected("state"), form, tmp_path / "out")
    assert names_below(tmp_path) == []


def test_unknown_format_names_the_nearest(collected, tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'minari'"):
        export_dataset(collected("state"), "minary", tmp_path / "out")


def test_nothing_to_export_is_said(collected, tmp_path):
    with DatasetWriter(tmp_path / "set", collected("state").header) as writer:
        writer.add(collected("state").manifest()[2])
    with pytest.raises(DatasetError, match="no episode to export"):
        export_dataset(Dataset(tmp_path / "set"), "zarr")
    assert names_below(tmp_path / "set") == ["dataset.json", "episodes", "manifest.jsonl"]


def test_command_says_what_it_made(collected, tmp_path, capsys):
    folder, output = str(collected("state").folder), tmp_path / "out"
    arguments = ["export", folder, "--to", "minari", "--output"]
    assert main([*arguments, str(output)]) == 0
    text = capsys.readouterr().out
    assert "minari: 2 episodes" in text
    assert "left out: " in text
    assert f"MINARI_DATASETS_PATH={output}" in text
    assert main([*arguments, str(tmp_path / "every"), "--all", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["format"], made["episodes"]) == ("minari", 3)
    assert Path(made["output"]).is_dir()
    assert main([*arguments, str(tmp_path / "silent"), "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_command_refuses_what_it_cannot_do(collected, tmp_path, capsys):
    folder = str(collected("state").folder)
    for arguments in (["--to", "tfds"], []):
        with pytest.raises(SystemExit) as exit:
            main(["export", folder, *arguments])
        assert exit.value.code == 2
    assert main(["export", str(tmp_path), "--to", "zarr"]) == 2
    assert "is not a data set" in capsys.readouterr().err
    (tmp_path / "mine").touch()
    taken = str(tmp_path / "mine")
    assert main(["export", folder, "--to", "robomimic", "--output", taken]) == 2
    assert "exists already" in capsys.readouterr().err
