import re
import sys
import tomllib

import pytest
from conftest import ROOT

from fleet_tools.errors import MissingLibraryError
from fleet_tools.utils import libraries
from fleet_tools.utils.libraries import OPTIONAL, install_line, require

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_table_names_exactly_what_the_extras_install():
    said = {(library.extra, library.distribution) for library in OPTIONAL}
    installed = {
        (extra, re.match(r"[\w-]+", requirement)[0])
        for extra, requirements in EXTRAS.items()
        if extra not in ("test", "dev")
        for requirement in requirements
    }
    assert said == installed


@pytest.mark.parametrize("library", OPTIONAL, ids=lambda library: library.module)
def test_absent_library_is_named_with_the_line_that_installs_it(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library.module, None)
    with pytest.raises(MissingLibraryError) as error:
        require(library.module, "try")
    assert library.module in str(error.value)
    assert install_line(library.extra) in str(error.value)


def test_line_for_a_checkout_works_from_where_one_stands(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    assert install_line("video") == 'python3 -m pip install -c constraints.txt -e ".[video]"'
    monkeypatch.chdir(tmp_path)
    constraints, source = re.fullmatch(
        r'python3 -m pip install -c "(.+)" -e "(.+)\[video\]"', install_line("video")
    ).groups()
    assert (constraints, source) == (str(ROOT / "constraints.txt"), str(ROOT))


def test_line_for_a_wheel_needs_no_checkout(monkeypatch, tmp_path):
    monkeypatch.setattr(
        libraries, "__file__", str(tmp_path / "fleet_tools" / "utils" / "libraries.py")
    )
    assert install_line("video") == 'python3 -m pip install "fleet-tools[video]"'
