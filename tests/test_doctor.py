"""The doctor, with this machine as it is, and with what is hidden from it for real."""

import json
import os

import pytest
from conftest import needs_gl

from fleet_tools import doctor
from fleet_tools.utils import libraries
from fleet_tools.utils.libraries import GL_LINE, OPTIONAL, install_line
from fleet_tools.utils.machine import available_cores, available_memory, free_disk


@pytest.fixture(name="hide")
def _hide(monkeypatch, tmp_path):
    """Hides modules from every Python that is started from now on."""

    def hide(*modules, by="None"):
        lines = [f"sys.modules[{module!r}] = {by}" for module in modules]
        (tmp_path / "sitecustomize.py").write_text("\n".join(["import sys", *lines]))
        path = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))

    return hide


def test_this_machine_can_collect(capsys):
    assert doctor.main(["--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    checks = {check["name"]: check for check in report["checks"]}
    assert report["ok"]
    assert {library.distribution for library in OPTIONAL} <= checks.keys()
    assert all(check["status"] == "ok" for check in checks.values() if check["needed"])
    for check in checks.values():  # whoever names a mending line has found something to mend
        assert (check["remedy"] is None) or check["status"] != "ok"


def test_without_drake_nothing_works_and_the_line_mends_it(hide, capsys):
    hide("pydrake")
    assert doctor.main([]) == 1
    printed = capsys.readouterr().out
    assert "python3 -m pip install drake" in printed
    assert "cannot be collected" in printed


def test_absent_library_is_missing_and_one_that_fails_is_broken(hide, tmp_path):
    library = OPTIONAL[0]
    hide(library.module)
    check = doctor.check_library(library)
    assert (check.status, check.remedy) == ("missing", install_line(library.extra))
    (tmp_path / "sitecustomize.py").unlink()
    (tmp_path / f"{library.module}.py").write_text("raise RuntimeError('no such symbol')")
    check = doctor.check_library(library)
    assert (check.status, check.remedy) == ("broken", install_line(library.extra))
    assert "no such symbol" in check.detail


def test_crash_of_a_library_is_a_finding(tmp_path, monkeypatch):
    (tmp_path / "crashing.py").write_text("import os\nos.abort()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    check = doctor.check_library(libraries.Library("crashing", "crashing", "import", "crash"))
    assert check.status == "broken"
    assert "crashes (signal 6)" in check.detail


@needs_gl
def test_images_without_a_driver_are_missing_with_the_line(monkeypatch):
    assert doctor.check_rendering().status == "ok"
    monkeypatch.setenv("__EGL_VENDOR_LIBRARY_DIRS", "/nonexistent")
    check = doctor.check_rendering()
    assert (check.status, check.remedy, check.needed) == ("missing", GL_LINE, False)


def test_share_of_the_machine_is_a_part_of_it(tmp_path):
    assert 0 < available_cores() <= os.cpu_count()
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < available_memory() <= total
    assert free_disk(tmp_path) > 0


def test_share_of_a_container_is_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("fleet_tools.utils.machine._CGROUP", tmp_path)
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "memory.max").write_text("300\n")
    (tmp_path / "memory.current").write_text("100\n")
    assert (available_cores(), available_memory()) == (0.5, 200)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert available_cores() == len(os.sched_getaffinity(0))
    assert available_memory() > 200
