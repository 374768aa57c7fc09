"""Minari's and robomimic's files are views: they copy nothing, and move with the data."""

import shutil
from pathlib import Path

import h5py
import pytest
from conftest import needs_gl
from exported import load_minari, read_robomimic, same, successes

from fleet_tools.dataset import Dataset
from fleet_tools.dataset.export import export_dataset


@needs_gl
def test_views_copy_nothing(collected, tmp_path):
    export_dataset(collected("rgbd"), "minari", tmp_path / "minari")
    export_dataset(collected("rgbd"), "robomimic", tmp_path / "view.hdf5")
    owned = []

    def note(name, item):
        if isinstance(item, h5py.Dataset) and not item.is_virtual:
            owned.append(name)

    for path in (*tmp_path.rglob("main_data.hdf5"), tmp_path / "view.hdf5"):
        with h5py.File(path) as file:
            file.visititems(note)  # which follows no links
    assert {name.split("/")[0] for name in owned if "dones" not in name} == {"mask"}


@pytest.mark.parametrize("form", ["minari", "robomimic"])
def test_view_and_data_move_together(form, collected, tmp_path, monkeypatch):
    there = tmp_path / "there"
    shutil.copytree(collected("state").folder, there / "data" / "hammer")
    dataset = Dataset(there / "data" / "hammer")
    made = export_dataset(dataset, form)  # beside the data set
    assert Path(made.output).is_relative_to(there / "data")
    there.rename(tmp_path / "here")
    view = tmp_path / "here" / Path(made.output).relative_to(there)
    ours = successes(Dataset(tmp_path / "here/data/hammer"))[1]

    def actions():
        if form == "robomimic":
            return read_robomimic(view)[1]["actions"]
        return load_minari(monkeypatch, tmp_path / "here/data/hammer-minari", "state")[1].actions

    assert same(actions(), ours.actions)
    shutil.rmtree(tmp_path / "here/data/hammer")
    with pytest.raises((KeyError, OSError)):
        actions()
