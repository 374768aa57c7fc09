"""Compiled arithmetic: where its code is kept, and what it may call."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core.dispatcher import Dispatcher
from support.processes import ROOT

PACKAGE = ROOT / "fleet_tools"
MODULES = sorted(
    ".".join(("fleet_tools", *path.relative_to(PACKAGE).with_suffix("").parts))
    for path in PACKAGE.rglob("*.py")
    if "\n@compiled\n" in path.read_text()
)
SUM = """
from fleet_tools.utils.compiled import compiled

@compiled
def add(a, b):
    return a + b

print(add(2, 3))
"""


@pytest.mark.parametrize("module", MODULES)
def test_compiled_functions_call_those_of_their_own_file_only(module):
    # numba would go on using its cached code after a change in another file.
    content = vars(importlib.import_module(module))
    compiled = [value for value in content.values() if isinstance(value, Dispatcher)]
    assert compiled
    for function in compiled:
        for name in function.py_func.__code__.co_names:
            called = content.get(name)
            if isinstance(called, Dispatcher) and function.py_func.__module__ == module:
                assert called.py_func.__module__ == module, f"{function.__name__} calls {name}"


@pytest.mark.parametrize("home", ["writable", "none"])
def test_it_works_where_the_package_is_read_only(tmp_path: Path, home: str):
    script = tmp_path / "package" / "script.py"
    script.parent.mkdir()
    script.write_text(SUM)
    # Files in place of folders, which not even root can write into.
    (script.parent / "__pycache__").touch()
    (tmp_path / "none").touch()
    place = tmp_path / home
    variables = {
        "HOME": str(place),
        "XDG_CACHE_HOME": str(place / "cache"),
        "PYTHONPATH": str(ROOT),
    }
    for _ in range(2):
        finished = subprocess.run(
            [sys.executable, "-W", "error", str(script)],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert finished.stdout.strip() == "5", finished.stderr
    assert bool(list(tmp_path.glob("writable/**/*.nbi"))) == (home == "writable")


def test_processes_may_compile_at_the_same_time(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(SUM)
    variables = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen([sys.executable, script], env=variables, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate(timeout=120)[0].strip() for process in processes] == ["5"] * 3
