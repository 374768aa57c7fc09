"""Checks of libraries, with libraries that are really absent, broken, crash or hang."""

import pytest
from support.hidden_modules import hide_modules

from fleet_tools import doctor
from fleet_tools.doctor import check_extras
from fleet_tools.utils.libraries import OPTIONAL, Library, install_command

ODD = Library("odd", "odd", "import", "be odd")


def test_absent_library_is_missing(tmp_path, monkeypatch):
    library = OPTIONAL[0]
    hide_modules(monkeypatch, tmp_path, library.module)
    (check,) = check_extras([library])
    assert (check.status, check.remedy) == ("missing", install_command(library.extra))
    assert library.purpose in check.detail


def test_each_extra_has_one_check_and_one_remedy(tmp_path, monkeypatch):
    hide_modules(monkeypatch, tmp_path, *(library.module for library in OPTIONAL))
    checks = {check.name: check for check in check_extras(OPTIONAL)}
    assert list(checks) == list(dict.fromkeys(library.extra for library in OPTIONAL))
    for extra, check in checks.items():
        assert check.remedy == install_command(extra)
        for library in OPTIONAL:
            assert (f"{library.distribution} is missing" in check.detail) == (
                library.extra == extra
            )


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("raise RuntimeError('no such symbol')", "no such symbol"),
        ("import os; os.abort()", "ended with SIGABRT"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("import os; os._exit(3)", "exit code 3"),
        ("import time; time.sleep(60)", "did not return within 1 s"),
    ],
)
def test_library_that_cannot_be_imported_is_broken(code, error, tmp_path, monkeypatch):
    (tmp_path / "odd.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    if "sleep" in code:
        monkeypatch.setattr(doctor, "_TIMEOUT_S", 1.0)
    (check,) = check_extras([ODD])
    assert (check.status, check.remedy) == ("broken", install_command("import"))
    assert error in check.detail
