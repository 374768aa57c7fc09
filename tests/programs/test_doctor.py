"""The doctor, on this machine as it is, and without what is really hidden from it."""

import contextlib
import io
import json
from importlib.util import find_spec
from typing import Any

import pytest
from support.hidden_modules import hide_modules
from support.rendering import needs_gl

from fleet_tools import doctor
from fleet_tools.doctor import check_drake, probe
from fleet_tools.utils.drake_release import ANY_RELEASE, INSTALL_COMMAND, installed_release
from fleet_tools.utils.libraries import GL_COMMAND, OPTIONAL, install_command

SLOW_IMPORTS = ("torch", "dp_accounting", "sklearn", "stable_baselines3", "open3d")


@pytest.fixture(name="report", scope="module")
def _report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report on this machine, without the libraries whose imports take long."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        hide_modules(monkeypatch, tmp_path_factory.mktemp("hidden"), *SLOW_IMPORTS)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            assert doctor.main(["--json"]) == 0
    return json.loads(printed.getvalue())


@pytest.mark.slow
def test_this_machine_can_collect(report):
    assert report["ok"]
    checks = {check["name"]: check for check in report["checks"]}
    assert all(check["status"] == "ok" for check in checks.values() if check["needed"])


@pytest.mark.slow
def test_every_library_is_checked_and_absent_ones_have_a_remedy(report):
    checks = {check["name"]: check for check in report["checks"]}
    for extra in {library.extra for library in OPTIONAL}:
        modules = [library.module for library in OPTIONAL if library.extra == extra]
        check = checks.pop(extra)
        absent = any(each in SLOW_IMPORTS or find_spec(each) is None for each in modules)
        expected = ("missing", install_command(extra)) if absent else ("ok", None)
        assert (check["status"], check["remedy"]) == expected
    for check in checks.values():
        assert check["remedy"] is None or check["status"] != "ok"


@pytest.mark.slow  # of a Drake that does not work: below
def test_without_drake_nothing_can_be_collected(tmp_path, monkeypatch, capsys):
    # The other libraries are hidden because their imports take long.
    others = [library.module for library in OPTIONAL]
    hide_modules(monkeypatch, tmp_path, "pydrake", "ray", *others)
    assert doctor.main([]) == 1
    printed = capsys.readouterr().out
    assert f"remedy: {install_command()}" in printed
    assert GL_COMMAND not in printed  # OpenGL is not what is missing
    assert "cannot be collected" in printed


def test_a_crash_of_the_simulation_is_told_with_the_versions_that_work(tmp_path, monkeypatch):
    crash = "import gymnasium, os\ngymnasium.make = lambda *_, **__: os.abort()"
    (tmp_path / "sitecustomize.py").write_text(crash)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    drake, simulation, images, meshcat, *_ = doctor.check_programs()
    assert drake.status == meshcat.status == "ok"
    assert (simulation.status, simulation.needed) == ("broken", True)
    assert "SIGABRT" in simulation.detail and installed_release() in simulation.detail
    assert simulation.remedy == install_command()
    assert (images.status, images.remedy) == ("broken", None)


def test_an_untested_release_of_drake_is_broken_unless_it_is_admitted(tmp_path, monkeypatch):
    record = tmp_path / "drake-1.40.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: drake\nVersion: 1.40.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    for admitted, status in ("", "broken"), ("1", "ok"):
        monkeypatch.setenv(ANY_RELEASE, admitted)
        check = check_drake("1.40.0")
        assert (check.status, check.remedy) == (status, INSTALL_COMMAND)
        assert "1.40.0, not tested" in check.detail


@needs_gl
@pytest.mark.slow
def test_images_without_a_driver_are_missing_with_a_remedy(report, monkeypatch):
    status = {check["name"]: check["status"] for check in report["checks"]}
    assert status["Images (EGL)"] == "ok"
    monkeypatch.setenv("__EGL_VENDOR_LIBRARY_DIRS", "/nonexistent")
    check = doctor.check_rendering(probe("rendering_time"), simulates=True)
    assert (check.status, check.remedy, check.needed) == ("missing", GL_COMMAND, False)
