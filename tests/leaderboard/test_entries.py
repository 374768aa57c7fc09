"""The results in the repository are accepted, and its page shows their numbers."""

import json
import re

import pytest
from support.processes import ROOT
from support.submitted import overall

from fleet_tools.evaluation.protocol import load_protocol, protocol_digest, task_digests
from fleet_tools.evaluation.result_file import RESULT
from fleet_tools.leaderboard.board import Board
from fleet_tools.leaderboard.markdown import as_markdown
from fleet_tools.leaderboard.standings import rank_methods
from fleet_tools.leaderboard.submissions import read_submissions

RESULTS = ROOT / "leaderboard" / "results"
PROTOCOL = load_protocol("v1")


@pytest.fixture(scope="module", name="board")
def _board() -> Board:
    submissions, rejections = read_submissions(RESULTS, PROTOCOL)
    assert not rejections
    digest = protocol_digest(PROTOCOL, task_digests(PROTOCOL))
    return Board(PROTOCOL, digest, rank_methods(submissions, PROTOCOL))


def test_zero_never_succeeds_and_the_expert_is_first(board: Board) -> None:
    by_name = {standing.name: overall(standing) for standing in board.standings if standing.overall}
    assert by_name["zero"].total.rate == 0
    assert by_name["expert"].rank == 1


def test_results_of_schema_version_1_are_read(board: Board) -> None:
    former = 0
    for standing in board.standings:
        for submission in standing.submissions:
            stored = json.loads((RESULTS / submission.folder / RESULT).read_text())
            if stored["schema_version"] == 1:
                former += 1
                assert submission.policy.env_kwargs == stored["policy"]["environment"]
                assert (scores := submission.evaluation.result.scores) is not None
                assert scores.total.success.model_dump() == stored["scores"]["total"]["end"]
                assert (
                    scores.total.success_once.model_dump() == stored["scores"]["total"]["any_time"]
                )
    assert former == 30


def test_the_stored_page_follows_from_the_results(board: Board) -> None:
    stored = (ROOT / "leaderboard" / "index.md").read_text().splitlines()
    stored = [line for line in stored if not line.startswith("- verified: ")]
    (separator, *_) = (k for k, line in enumerate(stored) if line.startswith("|---|"))
    stored[separator] = stored[separator].removesuffix("---|")
    for k in (separator - 1, *range(separator + 1, separator + 1 + len(board.standings))):
        stored[k] = re.sub(r" (verified|(\d+) of \2) \|$", "", stored[k])
    assert stored == as_markdown(board).splitlines()
