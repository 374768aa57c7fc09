"""Benchmarks: each has a reader, and what their child processes answer."""

import re
from pathlib import Path

import pytest
from scaffold import Child
from support.pages import TEXTS
from support.processes import ROOT

from fleet_tools.errors import FleetToolsError

BENCHMARKS = ROOT / "benchmarks"
MODULES = {
    ".".join(path.relative_to(BENCHMARKS).with_suffix("").parts).removesuffix(".__init__"): path
    for path in BENCHMARKS.rglob("*.py")
}
PATHS = {"PYTHONPATH": f"{ROOT}:{BENCHMARKS}"}


def imported(path: Path) -> set[str]:
    """Returns the modules of benchmarks that a file imports, those in strings of code, too."""
    text = path.read_text(encoding="utf-8")
    names = re.findall(r"(?m)^ *(?:from|import) ([\w.]+)", text)
    return {part for name in names for part in (name, name.partition(".")[0]) if part in MODULES}


def test_every_benchmark_is_named_by_a_page_or_used_by_a_test():
    """Modules of tasks in a package are found by the package."""
    tests = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "baselines/merging/tests").rglob("*.py")]
    texts = "".join(path.read_text(encoding="utf-8") for path in [*TEXTS, *tests])
    reached = {name for name, path in MODULES.items() if f"benchmarks/{path.name}" in texts}
    reached |= {name for path in tests for name in imported(path)}
    new = reached
    while new:
        new = {name for each in new for name in imported(MODULES[each])} - reached
        reached |= new
    packages = {name for name in reached if MODULES[name].name == "__init__.py"}
    unread = [
        name
        for name, path in MODULES.items()
        if name not in reached and path.parent.name not in packages
    ]
    assert unread == []


PROGRAM = """
import os, signal, sys
from scaffold import answering

with answering() as answer:
    print("not an answer")
    answer({"ready": True})
    for line in sys.stdin:
        if line == "die\\n":
            os.kill(os.getpid(), signal.SIGKILL)
        answer(int(line))
"""


@pytest.fixture(name="program")
def _program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


@pytest.mark.parametrize(
    ("last", "reason"), [("die", r"signal 9 \(Killed\)"), ("seven", "ValueError: .*'seven")]
)
def test_a_child_answers_until_it_fails_and_says_why(program, last, reason):
    with Child(program, variables=PATHS) as child:
        assert child.answer() == {"ready": True}
        for question in (3, 4):
            child.ask(str(question))
            assert child.answer() == question
        child.ask(last)
        with pytest.raises(FleetToolsError, match=reason):
            child.answer()


def test_an_interpreter_that_is_missing_is_named(program):
    with pytest.raises(FleetToolsError, match="no_such_python"):
        Child(program, interpreter="no_such_python")
