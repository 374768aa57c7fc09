"""The doctor, on this machine as it is, and without what is really hidden from it."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from support.hidden_modules import hide_modules
from support.rendering import needs_gl

from fleet_tools import doctor
from fleet_tools.utils.libraries import GL_COMMAND, OPTIONAL, install_command

SLOW_IMPORTS = ("torch", "sklearn", "stable_baselines3", "open3d")


@pytest.fixture(name="report", scope="module")
def _report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report on this machine, without the libraries whose imports take long."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        hide_modules(monkeypatch, tmp_path_factory.mktemp("hidden"), *SLOW_IMPORTS)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            assert doctor.main(["--json"]) == 0
    return json.loads(printed.getvalue())


@pytest.mark.slow
def test_this_machine_can_collect(report: dict[str, Any]) -> None:
    assert report["ok"]
    checks = {check["name"]: check for check in report["checks"]}
    assert all(check["status"] == "ok" for check in checks.values() if check["needed"])


@pytest.mark.slow
def test_every_library_is_checked_and_absent_ones_have_a_remedy(report: dict[str, Any]) -> None:
    checks = {check["name"]: check for check in report["checks"]}
    for library in OPTIONAL:
        check = checks.pop(library.distribution)
        hidden = library.module in SLOW_IMPORTS
        expected = ("missing", install_command(library.extra)) if hidden else ("ok", None)
        assert (check["status"], check["remedy"]) == expected
    for check in checks.values():
        assert check["remedy"] is None or check["status"] != "ok"


def test_without_drake_nothing_can_be_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The other libraries are hidden because their imports take long.
    others = [library.module for library in OPTIONAL]
    hide_modules(monkeypatch, tmp_path, "pydrake", "ray", *others)
    assert doctor.main([]) == 1
    printed = capsys.readouterr().out
    assert "remedy: python3 -m pip install drake" in printed
    assert "cannot be collected" in printed


@needs_gl
@pytest.mark.slow
def test_images_without_a_driver_are_missing_with_a_remedy(
    report: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    status = {check["name"]: check["status"] for check in report["checks"]}
    assert status["Images (EGL)"] == "ok"
    monkeypatch.setenv("__EGL_VENDOR_LIBRARY_DIRS", "/nonexistent")
    check = doctor.check_rendering()
    assert (check.status, check.remedy, check.needed) == ("missing", GL_COMMAND, False)
