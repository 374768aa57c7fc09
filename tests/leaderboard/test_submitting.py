"""How to submit: the pages and the documentation say the same, and it works in a clone."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import ROOT

from fleet_tools.evaluation.result_folder import RESULT
from fleet_tools.leaderboard.records import VERIFIED
from fleet_tools.leaderboard.wording import SUBMITTING, SUBMITTING_PAGE

COMMANDS = [command for _, commands in SUBMITTING for command in commands]
RESULTS = Path("leaderboard/results")


def test_the_documentation_has_the_same_commands():
    lines = (ROOT / SUBMITTING_PAGE).read_text().splitlines()
    assert [line for line in lines if line in COMMANDS] == COMMANDS


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(name="clone")
def _clone(tmp_path: Path) -> Path:
    """A clone with few results, committed, and a complete one of `my_method` that is not."""
    clone = tmp_path / "clone"
    for kept in ("zero", VERIFIED):
        copy = shutil.copytree if (ROOT / RESULTS / kept).is_dir() else shutil.copy
        (clone / RESULTS).mkdir(parents=True, exist_ok=True)
        copy(ROOT / RESULTS / kept, clone / RESULTS / kept)
    git(clone, "init", "-q")
    for key, value in {"user.name": "somebody", "user.email": "somebody@example.org"}.items():
        git(clone, "config", key, value)
    git(clone, "add", ".")
    git(clone, "commit", "-qm", "what is there")
    mine = clone / RESULTS / "my_method"
    shutil.copytree(clone / RESULTS / "zero", mine)
    for file in mine.rglob(RESULT):
        content = json.loads(file.read_text())
        policy = {"name": "my_method", "kind": "factory", "source": "my_module:make_policy"}
        content["policy"] |= policy
        file.write_text(json.dumps(content) + "\n")
    return clone


@pytest.mark.slow  # starts git and the program
def test_the_commands_commit_the_results_and_nothing_else(clone):
    """All but the first, which evaluates 480 scenes; of its result, two are run again here."""
    for command in COMMANDS[1:]:
        few = command.replace("--verify 10", "--verify 2 --workers 0 --quiet")
        for part in few.split(" && "):
            words = shlex.split(part)
            words[:1] = [sys.executable] if words[0] == "python" else words[:1]
            finished = subprocess.run(words, cwd=clone, capture_output=True, text=True)
            assert finished.returncode == 0, (command, finished.stderr)
    changed = git(clone, "show", "--name-only", "--format=", "HEAD").split()
    assert changed and all(path.startswith(f"{RESULTS}/my_method/") for path in changed)
    assert git(clone, "status", "--porcelain", "--untracked-files=no") == ""
    assert (clone / "page.html").is_file()
