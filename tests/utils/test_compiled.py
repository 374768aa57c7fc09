"""Compiled arithmetic: where its code is kept, and what it may call."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import ROOT, run_command, run_python
from support.small_disks import PAGE

from fleet_tools.utils.compiled import SHARED_FOLDER

PACKAGE = ROOT / "fleet_tools"
MODULES = sorted(
    ".".join(("fleet_tools", *path.relative_to(PACKAGE).with_suffix("").parts))
    for path in PACKAGE.rglob("*.py")
    if "\n@compiled\n" in path.read_text()
)
SUM = """
from fleet_tools.utils.compiled import compiled

@compiled
def plus(a, b):
    return a + b

@compiled
def add(a, b):
    return plus(a, b)

print(add(2, 3))
"""
FAMILY = (
    SUM
    + """
import json, os, subprocess, sys
from numba.core import event

if len(sys.argv) == 1:
    folder = os.environ["FLEET_TOOLS_COMPILED"]
    child = [sys.executable, __file__, "child"]
    print(json.dumps([folder, os.stat(folder).st_mode & 0o777]), flush=True)
    for _ in range(2):
        subprocess.run(child, check=True)
    os.chmod(folder, 0o755)
    subprocess.run(child, check=True)
else:
    with event.install_recorder("numba:compile") as compilations:
        add(2.0, 3.0)  # of other types than those above
        print(len(compilations.buffer) > 0)
"""
)


@pytest.mark.parametrize("module", MODULES)
def test_compiled_functions_call_those_of_their_own_file_only(module):
    # numba would go on using its cached code after a change in another file.
    functions = {
        name: value.__wrapped__
        for name, value in vars(importlib.import_module(module)).items()
        # numba's own kind takes their place when they are called
        if type(value).__module__.startswith(("fleet_tools.utils.compiled", "numba."))
    }
    assert functions
    for function in functions.values():
        for name in function.__code__.co_names:
            if name in functions and function.__module__ == module:
                assert functions[name].__module__ == module, f"{function.__name__} calls {name}"


@pytest.mark.parametrize("home", ["writable", pytest.param("none", marks=pytest.mark.slow)])
def test_it_works_where_the_package_is_read_only(tmp_path, home):
    script, variables = unwritable(tmp_path, tmp_path / home, SUM)
    for _ in range(2):
        finished = run(script, variables)
        assert finished.stdout.strip() == "5", finished.stderr
        said = finished.stderr.splitlines()
        assert ["NUMBA_CACHE_DIR" in line for line in said] == [True] * (home == "none")
    assert bool(list(tmp_path.glob("writable/**/*.nbi"))) == (home == "writable")


@pytest.mark.slow  # compiles in other processes
def test_it_works_where_the_cache_has_no_room(tmp_path, disk):
    script, folder = tmp_path / "script.py", disk.folder
    script.write_text(SUM)
    variables = os.environ | {"NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    with disk.room(2 * PAGE):
        for _ in range(2):
            finished = run(script, variables)
            assert finished.stdout.strip() == "5", finished.stderr
            assert not finished.stderr
    assert not list(folder.rglob("*.nbc"))
    assert run(script, variables).stdout.strip() == "5"
    assert len(list(folder.rglob("*.nbc"))) == 2  # of both functions


@pytest.mark.slow  # compiles in other processes
def test_without_a_cache_processes_share_a_folder_of_this_user_for_a_run(tmp_path):
    script, variables = unwritable(tmp_path, tmp_path / "none", FAMILY)
    finished = run(script, variables)
    own, at, *children = finished.stdout.splitlines()
    folder, mode = json.loads(at)
    assert own == "5" and mode == 0o700
    # Each prints the sum; then, whether it compiled for numbers with a point. The second finds the
    # code of the first. The third uses nothing that others than this user might have written.
    assert children == ["5", "True", "5", "False", "5", "True"]
    # The one that may not use the folder says so itself.
    assert len(finished.stderr.splitlines()) == 2, finished.stderr
    assert not Path(folder).exists()


def test_an_episode_on_states_needs_no_compiler_of_python():
    used = run_python(
        """
import json, sys, gymnasium, fleet_tools
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.utils import straight_line

forms = []
translate = straight_line._Code.__init__
def count(self, function, form):
    forms.append((function.__qualname__, repr(form)))
    translate(self, function, form)
straight_line._Code.__init__ = count
env = gymnasium.make("FleetTools/Hammer-v0")
for seed in range(2):
    assert rollout(env, ExpertPolicy(env), seed=seed).outcome == "success"
print(json.dumps({"numba": "numba" in sys.modules, "forms": forms}))
"""
    )
    assert not used["numba"]
    forms = [tuple(form) for form in used["forms"]]
    assert len(set(forms)) == len(forms) <= 20  # one for each number of contacts


def test_the_folder_of_compiled_code_is_where_numba_keeps_it(tmp_path):
    code = """
import json
from fleet_tools.utils.compiled import cache_folder
print(json.dumps(cache_folder()))
"""
    assert run_python(code, NUMBA_CACHE_DIR=str(tmp_path)).startswith(str(tmp_path))
    assert run_python(code).startswith(str(PACKAGE / "utils"))


@pytest.mark.slow  # compiles in other processes
def test_processes_may_compile_at_the_same_time(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SUM)
    variables = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen([sys.executable, script], env=variables, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate(timeout=120)[0].strip() for process in processes] == ["5"] * 3


def unwritable(tmp_path: Path, home: Path, content: str) -> tuple[Path, dict[str, str]]:
    """Returns a script in a folder without a cache, and the variables of a user with this home."""
    script = tmp_path / "package" / "script.py"
    script.parent.mkdir()
    script.write_text(content)
    # Files in place of folders, which not even root can write into.
    (script.parent / "__pycache__").touch()
    (tmp_path / "none").touch()
    places = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    return script, places | {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": ""}


def run(script: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a script as a run of its own, in which warnings are errors."""
    # Tests with workers in this process have made the folder that all its children share.
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(SHARED_FOLDER, raising=False)
        return run_command(sys.executable, "-W", "error", str(script), **variables)
