"""Checks of libraries, with libraries that are really absent, broken, crash or hang."""

import pytest
from support.hidden_modules import hide_modules

from fleet_tools.utils import diagnostics
from fleet_tools.utils.diagnostics import check_library
from fleet_tools.utils.libraries import OPTIONAL, Library, install_command

ODD = Library("odd", "odd", "import", "be odd")


def test_absent_library_is_missing(tmp_path, monkeypatch):
    library = OPTIONAL[0]
    hide_modules(monkeypatch, tmp_path, library.module)
    check = check_library(library)
    assert (check.status, check.remedy) == ("missing", install_command(library.extra))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("raise RuntimeError('no such symbol')", "no such symbol"),
        ("import os; os.abort()", "crashes (signal 6)"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("import time; time.sleep(60)", "does not end within 0.5 s"),
    ],
)
def test_library_that_cannot_be_imported_is_broken(code, error, tmp_path, monkeypatch):
    (tmp_path / "odd.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    if "sleep" in code:
        monkeypatch.setattr(diagnostics, "_TIMEOUT_S", 0.5)
    check = check_library(ODD)
    assert (check.status, check.remedy) == ("broken", install_command("import"))
    assert error in check.detail
