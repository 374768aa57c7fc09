"""What the repository holds of the leaderboard: results, their page, and pages that tell of it."""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import get_args

import pytest
from support.processes import ROOT, run_command
from support.submitted import overall

from fleet_tools.evaluation.config import PROTOCOL, EvaluationConfig
from fleet_tools.evaluation.protocol_file import load_levels
from fleet_tools.evaluation.result_folder import RESULT
from fleet_tools.evaluation.run import evaluate_policy
from fleet_tools.leaderboard.board import Board, RankedLevel, make_rankings
from fleet_tools.leaderboard.checks import ProblemKind
from fleet_tools.leaderboard.page import as_markdown
from fleet_tools.leaderboard.submissions import read_submissions

PAGES = ROOT / "docs" / "benchmark"
LEVELS = load_levels(PROTOCOL)
CURRENT = LEVELS["nominal"]
SUBMITTING = as_markdown(Board([RankedLevel.of(CURRENT)])).partition("## How to submit")[2]
COMMANDS = [*re.findall(r"^   (?!```)(.*)$", SUBMITTING, re.MULTILINE)]
RESULTS = Path("leaderboard/results")


@pytest.fixture(scope="module", name="board")
def _board() -> Board:
    levels = [*LEVELS.values()]
    submissions, rejections = read_submissions(ROOT / RESULTS, levels)
    assert not rejections
    return Board([RankedLevel.of(each) for each in levels], make_rankings(submissions, levels))


def test_every_entry_is_verified_zero_never_succeeds_and_the_expert_always_does(board):
    assert not [ranking for ranking in board.rankings if ranking.kind == "unverified"]
    for level in board.levels:
        totals = {
            standing.name: overall(standing).total.rate or 0.0
            for ranking in board.rankings_of(level)
            for standing in ranking.standings
            if standing.overall
        }
        assert totals.get("zero", 0) == 0 and totals.get("expert", 1) >= 0.97
        if totals and level.protocol == CURRENT:
            assert (totals["zero"], totals["expert"]) == (0, 1)


def test_the_stored_page_follows_from_the_results(board):
    stored = (ROOT / "leaderboard" / "index.md").read_text()
    if board.standings:
        assert stored.splitlines() == as_markdown(board).splitlines()
    else:
        assert "being measured again" in " ".join(stored.split())


def test_every_kind_of_problem_is_documented():
    text = (PAGES / "leaderboard.md").read_text()
    table = text.partition("| kind | problem |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == [*get_args(ProblemKind)]


def test_the_sizes_of_the_protocol_are_those_of_its_page():
    protocol, text = CURRENT, (PAGES / "protocol.md").read_text()
    assert f"protocols/{PROTOCOL}.yaml" in text
    (count,) = {scenes.scenes for scenes in protocol.splits.values()}
    total = len(protocol.trials())
    assert f"| `nominal` | {total}: {count} of each task and split |" in text
    for name in [*LEVELS][1:]:
        assert f"| `{name}` | {len(LEVELS[name].trials())} |" in text
    for split in protocol.splits:
        assert f"| `{split}` |" in text


def test_pages_link_to_how_to_submit_which_has_the_commands():
    (page,) = re.findall(r"\]\(\.\./(.*)\)", SUBMITTING)
    lines = (ROOT / page).read_text().splitlines()
    assert [line for line in lines if line in COMMANDS] == COMMANDS != []
    for page in ("leaderboard/README.md", "leaderboard/results/README.md", "CONTRIBUTING.md"):
        folder = (ROOT / page).parent
        links = re.findall(r"\]\(([^)#:]*submitting\.md)\)", (ROOT / page).read_text())
        assert links and all((folder / link).is_file() for link in links)


# --- How to submit ------------------------------------------------------------------------------


def git(folder: Path, *arguments: str) -> str:
    done = run_command("git", *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(name="clone")
def _clone(tmp_path: Path) -> Path:
    """A clone with one verified result, committed, and one of `my_method` that is not."""
    clone = tmp_path / "clone"
    config = EvaluationConfig(policy="expert", level="pushes", tool="hammer")
    evaluate_policy(config, clone / RESULTS / "expert")
    page = ["--output", str(tmp_path / "page.html"), "--quiet"]
    verify = [sys.executable, "-m", "fleet_tools.leaderboard", str(RESULTS), "--verify", "1", *page]
    assert run_command(*verify, cwd=clone).returncode == 0
    git(clone, "init", "-q")
    for key, value in {"user.name": "somebody", "user.email": "somebody@example.org"}.items():
        git(clone, "config", key, value)
    git(clone, "add", ".")
    git(clone, "commit", "-qm", "what is there")
    mine = clone / RESULTS / "my_method"
    shutil.copytree(clone / RESULTS / "expert", mine)
    for file in mine.rglob(RESULT):
        content = json.loads(file.read_text())
        policy = {"name": "my_method", "kind": "factory", "source": "my_module:make_policy"}
        content["policy"] |= policy
        file.write_text(json.dumps(content) + "\n")
    return clone


@pytest.mark.slow  # evaluates, and starts git and the program
def test_the_commands_commit_the_results_and_nothing_else(clone):
    """All but the first, which evaluates 480 scenes; of a result of 40, two are run again here."""
    for command in COMMANDS[1:]:
        few = command.replace("--verify 10", "--verify 2 --workers 0 --quiet")
        for part in few.split(" && "):
            words = shlex.split(part)
            words[:1] = [sys.executable] if words[0] == "python" else words[:1]
            finished = run_command(*words, cwd=clone)
            assert finished.returncode == 0, (command, finished.stderr)
    changed = git(clone, "show", "--name-only", "--format=", "HEAD").split()
    assert changed and all(path.startswith(f"{RESULTS}/my_method/") for path in changed)
    assert git(clone, "status", "--porcelain", "--untracked-files=no") == ""
    assert (clone / "page.html").is_file()
