"""What a checkout imports, an installed wheel has, under one name only."""

import importlib
import importlib.util
import os
import pkgutil
import subprocess
import sys

import pytest
from support.processes import ROOT

import fleet_tools
from fleet_tools.errors import MissingLibraryError

ROOMS = ("assets", "baselines", "experts", "task_configs")
"""Rooms at the top level of a checkout, which the package sees through links."""


MERGING = str(ROOT / "fleet_tools" / "baselines" / "merging")
"""A distribution of its own, which lies in a room."""


def folders_of_modules():
    """Yields every folder of the package that holds modules; links are followed."""
    for folder, folders, files in os.walk(ROOT / "fleet_tools", followlinks=True):
        if folder == MERGING:
            folders.clear()
        if any(file.endswith(".py") for file in files):
            yield folder, files


def test_every_folder_of_modules_is_a_package():
    # setuptools finds no others.
    assert [folder for folder, files in folders_of_modules() if "__init__.py" not in files] == []


@pytest.mark.parametrize("room", ROOMS)
def test_outer_rooms_are_seen_through_relative_links(room):
    link = ROOT / "fleet_tools" / room
    assert link.is_symlink()
    assert os.readlink(link) == f"../{room}"


def test_no_module_is_importable_under_two_names():
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {{}}"
    outer = [f"{room}.{name}" for room in ROOMS for name in ("", "policy", "merge", "model")]
    for name in {name.rstrip(".") for name in outer}:
        child = subprocess.run([sys.executable, "-c", code.format(name)], capture_output=True)
        assert child.returncode == 1, name
        assert b"ImportError: Import fleet_tools." in child.stderr, child.stderr


def test_merging_has_no_second_name():
    with pytest.raises(ImportError, match="Import fleet_merging instead"):
        importlib.import_module("fleet_tools.baselines." + "merging.src.fleet_merging")


def test_merging_is_reexported_and_its_absence_tells_how_to_install_it(monkeypatch):
    from fleet_tools import merging

    monkeypatch.setitem(sys.modules, "fleet_merging", None)
    with pytest.raises(MissingLibraryError, match=r"pip install .*baselines/merging"):
        importlib.reload(merging)


def test_every_module_has_one_file():
    files = {}
    for module in pkgutil.walk_packages(fleet_tools.__path__, "fleet_tools."):
        spec = importlib.util.find_spec(module.name)
        assert spec is not None and spec.origin is not None
        files.setdefault(os.path.realpath(spec.origin), []).append(module.name)
    assert {file: names for file, names in files.items() if len(names) > 1} == {}
