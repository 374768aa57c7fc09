"""The results in the repository are accepted, and its page shows their numbers."""

import pytest
from support.processes import ROOT
from support.submitted import overall

from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.evaluation.protocol import protocol_digest, task_digests
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.leaderboard.board import Board, make_rankings
from fleet_tools.leaderboard.submissions import read_submissions
from fleet_tools.leaderboard.texts import as_markdown

RESULTS = ROOT / "leaderboard" / "results"
CURRENT = load_protocol(PROTOCOL)


@pytest.fixture(scope="module", name="board")
def _board() -> Board:
    submissions, rejections = read_submissions(RESULTS, CURRENT)
    assert not rejections
    digest = protocol_digest(CURRENT, task_digests(CURRENT))
    return Board(CURRENT, digest, make_rankings(submissions, CURRENT))


def test_every_entry_is_verified(board):
    assert [ranking.kind for ranking in board.rankings] == ["observations", "privileged"]


def test_zero_never_succeeds_and_the_expert_always_does(board):
    totals = {each.name: overall(each).total.rate for each in board.standings if each.overall}
    assert (totals["zero"], totals["expert"]) == (0, 1)


def test_the_stored_page_follows_from_the_results(board):
    stored = (ROOT / "leaderboard" / "index.md").read_text()
    assert stored.splitlines() == as_markdown(board).splitlines()
