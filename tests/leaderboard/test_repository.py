"""What the repository holds of the leaderboard: entries, the host's record, and the page."""

import re

import pytest
from support.processes import ROOT

from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.evaluation.protocol_file import load_levels
from fleet_tools.leaderboard.board import Board
from fleet_tools.leaderboard.page import as_markdown
from fleet_tools.leaderboard.standings import make_board

PAGES = ROOT / "docs" / "benchmark"
LEVELS = load_levels(PROTOCOL)
CURRENT = LEVELS["nominal"]
LEADERBOARD = ROOT / "leaderboard"


@pytest.fixture(scope="module", name="board")
def _board() -> Board:
    return make_board(LEADERBOARD, [*LEVELS.values()])[0]


def test_entries_are_valid_at_most_twelve_and_no_copies(board):
    assert not board.rejections
    assert 0 < len(board.methods) <= 12
    assert not any(method.same_actions_as for method in board.methods)
    for method in board.methods:
        assert "README.md" in {p.name for p in (LEADERBOARD / "entries" / method.name).iterdir()}


def test_ranked_methods_are_verified_doing_nothing_never_succeeds_and_the_expert_always_does(board):
    rates = {each.name: each.score.rate or 0.0 for each in board.methods if each.score}
    assert rates.get("nothing", 0) == 0 and rates.get("expert", 1) >= 0.97
    for method in board.methods:
        assert method.rank is None or "verified" in method.provenance


def test_the_stored_page_follows_from_the_entries(board):
    stored = (LEADERBOARD / "index.md").read_text()
    if any(method.score or any(method.levels.values()) for method in board.methods):
        assert stored.splitlines() == as_markdown(board).splitlines()
    else:
        assert "being measured again" in " ".join(stored.split())


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


def test_pages_link_to_how_to_submit():
    for page in ("leaderboard/README.md", "CONTRIBUTING.md", "docs/benchmark/leaderboard.md"):
        folder = (ROOT / page).parent
        links = re.findall(r"\]\(([^)#:]*submitting\.md)", (ROOT / page).read_text())
        assert links and all((folder / link).is_file() for link in links), page
