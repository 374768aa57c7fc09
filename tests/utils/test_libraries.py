"""Optional libraries and releases of Drake: what is installed, and what is said where it is not."""

import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support.processes import ROOT, run_python

from fleet_tools.errors import MissingLibraryError
from fleet_tools.utils import libraries
from fleet_tools.utils.drake_release import (
    ANY_RELEASE,
    CONSTRAINTS,
    INSTALL_COMMAND,
    NEWEST,
    OLDEST,
    installed_release,
    is_tested,
)
from fleet_tools.utils.libraries import OPTIONAL, constraints, install_command, require

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def test_the_table_lists_exactly_what_the_extras_install():
    listed = {(library.extra, library.distribution) for library in OPTIONAL}
    installed = {
        (extra, re.split(r"[^\w-]", requirement)[0])
        for extra, requirements in EXTRAS.items()
        if extra not in ("all", "docs", "test", "dev")  # no program imports these
        for requirement in requirements
    }
    assert listed == installed


def test_the_extra_all_installs_every_extra_that_shares_its_environment():
    names = {name for each in map(Requirement, EXTRAS["all"]) for name in each.extras}
    apart = {"all", "docs", "test", "dev", "flower"}
    assert names == set(EXTRAS) - apart
    assert "pytest" in {Requirement(each).name for each in EXTRAS["all"]}


@pytest.mark.parametrize("library", OPTIONAL, ids=lambda library: library.module)
def test_the_message_about_an_absent_library_holds_its_installation_command(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library.module, None)
    with pytest.raises(MissingLibraryError) as error:
        require(library.module, "try")
    assert library.module in str(error.value)
    assert install_command(library.extra) in str(error.value)


def test_the_command_for_a_checkout_fits_the_working_directory(monkeypatch, tmp_path):
    pins = constraints(ROOT)
    assert versions(pins)["drake"] == installed_release()  # in a tested lane
    monkeypatch.chdir(ROOT)
    assert install_command("video") == f'python3 -m pip install -c {pins} -e ".[video]"'
    assert install_command() == f"python3 -m pip install -c {pins} -e ."
    monkeypatch.chdir(tmp_path)
    given = ["-c", str(ROOT / pins), "-e", f"{ROOT}[video]"]
    merging = ["-e", str(ROOT / "baselines" / "merging"), "-e", f"{ROOT}[learning]"]
    assert shlex.split(install_command("learning"))[-4:] == merging
    assert shlex.split(install_command("video")) == ["python3", "-m", "pip", "install", *given]


def versions(name: str) -> dict[str, str]:
    """Returns the versions in a file of constraints, by package."""
    lines = [line.partition("#")[0].strip() for line in (ROOT / name).read_text().splitlines()]
    return dict(line.lower().split("==") for line in lines if line)


def test_an_extra_that_wants_its_own_environment_has_its_own_constraints(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert "-c constraints-flower.txt" in install_command("flower")
    one, other = versions("constraints.txt"), versions("constraints-flower.txt")
    differing = {name for name in one.keys() & other.keys() if one[name] != other[name]}
    assert differing == {"packaging", "protobuf", "typer"} and "flwr" in other


@pytest.mark.parametrize("extra", sorted({library.extra for library in OPTIONAL}))
def test_the_command_for_a_wheel_needs_no_checkout_and_no_index_with_this_package(
    extra, monkeypatch, tmp_path
):
    monkeypatch.setattr(libraries, "_CHECKOUT", tmp_path)
    command = shlex.split(install_command(extra))
    assert command[:4] == ["python3", "-m", "pip", "install"]
    assert {*map(Requirement, command[4:])} == {
        Requirement(each) for each in EXTRAS[extra] if not each.startswith("fleet-merging")
    }
    assert install_command() == INSTALL_COMMAND


# --- Releases of Drake ----------------------------------------------------------------------

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
    (bounds,) = (text for text in PROJECT["dependencies"] if text.startswith("drake"))
    assert f'"{bounds}"' in INSTALL_COMMAND
    pinned = [
        release
        for name in CONSTRAINTS
        for release in re.findall(r"^drake==(.*)$", (ROOT / name).read_text(), re.MULTILINE)
    ]
    assert [release.rpartition(".")[0] for release in pinned] == [OLDEST, NEWEST]
    assert is_tested(installed_release()) and all(map(is_tested, pinned))
    assert not any(map(is_tested, ("1.40.0", "1.59.0", "2.0", "unknown")))
