"""Files for Minari and robomimic are views: they copy nothing, and move with the data."""

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from support.exported import Collected, load_minari, read_robomimic, same, successes
from support.rendering import needs_gl

from fleet_tools.dataset import Dataset
from fleet_tools.dataset.export.exporting import export_dataset


@needs_gl
def test_views_copy_nothing(collected: Collected, tmp_path: Path) -> None:
    export_dataset(collected("rgbd"), "minari", tmp_path / "minari")
    export_dataset(collected("rgbd"), "robomimic", tmp_path / "view.hdf5")
    copied = []

    def visit(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and not item.is_virtual:
            copied.append(name)

    for path in (*tmp_path.rglob("main_data.hdf5"), tmp_path / "view.hdf5"):
        with h5py.File(path) as file:
            file.visititems(visit)  # which follows no links
    new = ("dones", "imitate")
    assert {name.split("/")[0] for name in copied if not name.endswith(new)} == {"mask"}


@pytest.mark.parametrize("format_name", ["minari", "robomimic"])
def test_view_and_data_move_together(
    format_name: str, collected: Collected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    shutil.copytree(collected("state").folder, old / "data" / "hammer")
    export = export_dataset(Dataset(old / "data" / "hammer"), format_name)  # beside the dataset
    assert Path(export.output).is_relative_to(old / "data")
    old.rename(new)
    view = new / Path(export.output).relative_to(old)
    episode = successes(Dataset(new / "data/hammer"))[1]

    def actions() -> np.ndarray:
        if format_name == "robomimic":
            return read_robomimic(view)[1]["actions"]
        return load_minari(monkeypatch, new / "data/hammer-minari", "state")[1].actions

    assert same(actions(), episode.actions)
    shutil.rmtree(new / "data/hammer")
    with pytest.raises((KeyError, OSError, ValueError)):
        actions()
