"""Tested releases of Drake: said once, pinned by both files, and asked for before its import."""

import re
import tomllib
from pathlib import Path

import pytest
from support.processes import ROOT, run_python

from fleet_tools.utils.drake_release import (
    ANY_RELEASE,
    CONSTRAINTS,
    INSTALL_COMMAND,
    NEWEST,
    OLDEST,
    installed_release,
    is_tested,
)

MAKE = """
import json, sys
sys.path.insert(0, sys.argv[1])
import fleet_tools, gymnasium
try:
    gymnasium.make("FleetTools/Hammer-v0")
    error = ""
except ImportError as raised:
    error = f"{type(raised).__name__}: {raised}"
print(json.dumps([error, "pydrake" in sys.modules]))
"""


def make_with_release(release: str, folder: Path, **variables: str) -> tuple[str, bool]:
    """Makes an environment in a process whose Drake is said to be of a release.

    Returns:
        The error, and whether Drake was imported.
    """
    record = folder / f"drake-{release}.dist-info"
    record.mkdir()
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: drake\nVersion: {release}\n")
    error, imported = run_python(MAKE, str(folder), **variables)
    return error, imported


@pytest.mark.parametrize("release", ["1.59.0", "unknown"])
def test_an_untested_release_is_refused_before_its_import(release, tmp_path):
    error, imported = make_with_release(release, tmp_path, **{ANY_RELEASE: ""})
    assert not imported
    assert error.startswith("UntestedDrakeError: ")
    for said in (OLDEST, NEWEST, release, INSTALL_COMMAND, ANY_RELEASE, *CONSTRAINTS):
        assert said in error


def test_a_user_may_admit_any_release(tmp_path):
    assert make_with_release("1.40.0", tmp_path, **{ANY_RELEASE: "1"}) == ("", True)


def test_the_tested_releases_are_those_that_are_installed_and_pinned():
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (bounds,) = (text for text in dependencies if text.startswith("drake"))
    assert f'"{bounds}"' in INSTALL_COMMAND
    pinned = [
        release
        for name in CONSTRAINTS
        for release in re.findall(r"^drake==(.*)$", (ROOT / name).read_text(), re.MULTILINE)
    ]
    assert [release.rpartition(".")[0] for release in pinned] == [OLDEST, NEWEST]
    assert is_tested(installed_release()) and all(map(is_tested, pinned))
    assert not any(map(is_tested, ("1.40.0", "1.59.0", "2.0", "unknown")))
