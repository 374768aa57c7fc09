"""Blocks of code in README and in the documentation: they parse, and they run.

All python blocks of a page run in order, in one process and an empty folder: those of the pages
that a user opens first in every run, those of the others by `pytest -m slow`. A comment before a
block says otherwise: `<!-- test: slow -->` (run by `pytest -m slow`), `<!-- test: parse -->` (never
run) or `<!-- test: skip: REASON -->` (not even parsed). Slow tests also run the package's programs
in bash blocks, in a folder with a copy of `examples`. `test_notebooks` runs cells of notebooks.
"""

import ast
import importlib
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the references describe what the extra `learning` needs")

from support.page_commands import commands, problem
from support.page_runner import run, script
from support.pages import TEXTS, Block, blocks, links, name
from support.processes import ROOT

SHELL = ("bash", "sh", "console", "shell")
PARSED = ("run", "slow", "parse", "cell")
"""Tests of python blocks that are at least parsed."""

QUICK = ("README.md", "docs/index.md")
"""The pages that run in every run of the tests."""


def pages_with(*languages: str, tests: tuple[str, ...]) -> list[Path]:
    """Returns the pages with a block of a language whose test is one of some."""
    return [
        page
        for page in TEXTS
        if any(block.language in languages and block.test in tests for block in blocks(page))
    ]


def imported(code: str) -> list[tuple[str, str | None]]:
    """Returns the modules of the project that code imports, and the names from them."""
    found: list[tuple[str, str | None]] = []
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                found += [(module, each.name) for each in names]
            case ast.Import(names=names):
                found += [(each.name, None) for each in names]
    return [each for each in found if each[0].partition(".")[0] == "fleet_tools"]


@pytest.mark.parametrize("page", pages_with("python", tests=PARSED), ids=name)
def test_python_parses_and_imports_what_exists(page):
    for block in blocks(page):
        if block.language != "python" or block.test not in PARSED:
            continue
        for module, attribute in imported(block.code):
            found = importlib.import_module(module)
            if attribute is not None and not hasattr(found, attribute):
                importlib.import_module(f"{module}.{attribute}")


@pytest.mark.parametrize("page", pages_with(*SHELL, tests=("run", "slow", "parse")), ids=name)
def test_options_in_command_lines_exist(page):
    problems = [
        f"{name(page)}, line {block.line}: {' '.join(words)}: {found}"
        for block in blocks(page)
        if block.language in SHELL and block.test != "skip"
        for words in commands(block.code)
        if (found := problem(words)) is not None
    ]
    assert not problems, "\n".join(problems)


WHOLE = sorted({*pages_with(*SHELL, tests=("run", "slow")), *pages_with("python", tests=("slow",))})
"""The pages whose slow test also runs programs, or blocks that take minutes."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if name(page) in QUICK else pytest.mark.slow)
        for page in pages_with("python", tests=("run",))
        if name(page) in QUICK or page not in WHOLE
    ],
    ids=name,
)
def test_python_runs(page, tmp_path):
    chosen = [block for block in blocks(page) if (block.language, block.test) == ("python", "run")]
    expect_success(chosen, tmp_path / "empty", timeout_s=60)


@pytest.mark.slow
@pytest.mark.parametrize("page", WHOLE, ids=name)
def test_a_whole_page_runs(page, tmp_path):
    chosen = [
        block
        for block in blocks(page)
        if block.language in ("python", *SHELL) and block.test in ("run", "slow")
    ]
    shutil.copytree(ROOT / "examples", tmp_path / "checkout" / "examples")
    expect_success(chosen, tmp_path / "checkout", timeout_s=1800)


def expect_success(chosen: list[Block], folder: Path, timeout_s: float) -> None:
    """Runs blocks in a folder."""
    folder.mkdir(exist_ok=True)
    code, output = run(script(chosen), folder, timeout_s)
    assert code == 0, output


# --- The tests' own reading ------------------------------------------------------------------


def test_scripts_hold_code_and_programs_in_order():
    code = (
        "fleet-tools doctor\npython benchmarks/speed.py\npip install x\npython3 -m fleet_tools.view"
    )
    text = script([Block(1, "bash", "", code), Block(9, "python", "", "print(1)")])
    assert text.splitlines()[1:] == [
        "_subprocess.run([_sys.executable, '-m', 'fleet_tools', 'doctor'], check=True)",
        "_subprocess.run([_sys.executable, '-m', 'fleet_tools.view'], check=True)",
        "print(1)",
    ]


def test_a_page_is_split_into_its_blocks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n\n<!-- test: skip: no network -->\n```bash\ncurl x\n```\n\n:::{note}\n"
        "[a](b.md)\n```python\n1\n```\n:::\n\n````{code-block} python\n```\n````\n"
        "```{code-cell} python\n2\n```\n"
    )
    found = [(block.line, block.language, block.code, block.test) for block in blocks(page)]
    assert found == [
        (5, "bash", "curl x", "skip"),
        (11, "python", "1", "run"),
        (16, "python", "```", "run"),
        (19, "python", "2", "cell"),
    ]
    assert links(page) == ["b.md"]


def test_a_wrong_option_is_found():
    (words,) = commands("cd x && fleet-tools collect --tool hammer --episode 2  # few\n")
    assert "--episode" in (problem(words) or "")
    (words,) = commands(
        "FLEET=1 python -m fleet_tools.collect --tool hammer \\\n  --episodes 2 | cat"
    )
    assert problem(words) is None
    assert problem(["fleet-tools", "colect"]) is not None
    assert problem(["python", "benchmarks/nothing.py"]) is not None
    assert not list(commands("pip install x; python own.py; python -m pytest"))


def test_a_page_that_takes_too_long_is_ended_with_its_programs(tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    program = "[sys.executable, '-c', 'import time; time.sleep(60)']"
    code, _ = run(f"import subprocess, sys\nsubprocess.run({program})", folder, timeout_s=2)
    assert code is None
