"""The names that `import fleet_tools` offers: light, documented, typed for users."""

import importlib
import inspect
import runpy
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from support.processes import ROOT

import fleet_tools

SCRIPT = ROOT / "tests" / "data" / "user_script.py"


def test_all_is_what_dir_shows():
    assert sorted(fleet_tools.__all__) == sorted(dir(fleet_tools))
    assert not any(name.startswith("_") for name in fleet_tools.__all__)


@pytest.mark.parametrize("name", fleet_tools.__all__)
def test_every_public_name_has_a_docstring(name):
    value = getattr(fleet_tools, name)
    assert inspect.getdoc(value)
    assert value.__module__.startswith("fleet_tools.")


@pytest.mark.parametrize("name", ["evaluate", "collect", "replay"])
def test_no_public_name_hides_a_program(name):
    # `fleet_tools.evaluate` is a module as soon as somebody imports it.
    assert name not in fleet_tools.__all__
    assert inspect.ismodule(importlib.import_module(f"fleet_tools.{name}"))


def test_a_users_script_runs(capsys):
    runpy.run_path(str(SCRIPT))
    assert "True" in capsys.readouterr().out


@pytest.mark.slow
def test_a_users_script_passes_mypy_in_strict_mode(tmp_path):
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    shutil.copytree(ROOT / "fleet_tools", packages / "fleet_tools", ignore=_all_but_code)
    Path(packages, "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python)]
    checked = subprocess.run(
        [*command, str(SCRIPT)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def _all_but_code(folder, names):
    kept = (".py", ".pyi", ".typed")
    return [
        name for name in names if Path(name).suffix not in kept and Path(folder, name).is_file()
    ]
