"""Optional libraries: what the extras install, and messages about absent ones."""

import re
import shlex
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from support.processes import ROOT

from fleet_tools.errors import MissingLibraryError
from fleet_tools.utils import libraries
from fleet_tools.utils.drake_release import INSTALL_COMMAND, constraints, installed_release
from fleet_tools.utils.libraries import OPTIONAL, install_command, require

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_the_table_lists_exactly_what_the_extras_install():
    listed = {(library.extra, library.distribution) for library in OPTIONAL}
    installed = {
        (extra, re.split(r"[^\w-]", requirement)[0])
        for extra, requirements in EXTRAS.items()
        if extra not in ("docs", "test", "dev")  # no program imports these
        for requirement in requirements
    }
    assert listed == installed


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
    monkeypatch.setattr(
        libraries, "__file__", str(tmp_path / "fleet_tools" / "utils" / "libraries.py")
    )
    command = shlex.split(install_command(extra))
    assert command[:4] == ["python3", "-m", "pip", "install"]
    assert {*map(Requirement, command[4:])} == {*map(Requirement, EXTRAS[extra])}
    assert install_command() == INSTALL_COMMAND
