"""Compiled arithmetic: where its code is kept, and what it may call."""

import importlib
import os
import subprocess
import sys

import pytest
from support.processes import ROOT, run_command, run_python

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
    script = tmp_path / "package" / "script.py"
    script.parent.mkdir()
    script.write_text(SUM)
    # Files in place of folders, which not even root can write into.
    (script.parent / "__pycache__").touch()
    (tmp_path / "none").touch()
    home = tmp_path / home
    variables = {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "PYTHONPATH": str(ROOT),
        "NUMBA_CACHE_DIR": "",
    }
    for _ in range(2):
        finished = run_command(sys.executable, "-W", "error", str(script), **variables)
        assert (finished.stdout.strip(), finished.stderr) == ("5", "")
    assert bool(list(tmp_path.glob("writable/**/*.nbi"))) == (home.name == "writable")


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
