"""The results in the repository are accepted, and its page shows their numbers."""

import json
import re

import pytest
from support.processes import ROOT
from support.submitted import overall

from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.evaluation.protocol import (
    former_digests,
    load_protocol,
    protocol_digest,
    task_digests,
)
from fleet_tools.evaluation.result_file import RESULT
from fleet_tools.leaderboard.board import Board, Ranking, former_rankings
from fleet_tools.leaderboard.markdown import as_markdown
from fleet_tools.leaderboard.standings import rank_methods
from fleet_tools.leaderboard.submissions import read_submissions

RESULTS = ROOT / "leaderboard" / "results"
CURRENT = load_protocol(PROTOCOL)


@pytest.fixture(scope="module", name="board")
def _board() -> Board:
    submissions, rejections = read_submissions(RESULTS, CURRENT, former_digests(CURRENT))
    assert not rejections
    digest = protocol_digest(CURRENT, task_digests(CURRENT))
    present = [each for each in submissions if each.protocol_digest == digest]
    former = [each for each in submissions if each.protocol_digest != digest]
    ranking = Ranking(CURRENT, digest, rank_methods(present, CURRENT))
    return Board(ranking, former_rankings(former))


def rankings(board: Board) -> list[Ranking]:
    return [board.current, *board.former]


def test_zero_never_succeeds_and_the_expert_is_first(board: Board) -> None:
    for ranking in rankings(board):
        totals = {each.name: overall(each) for each in ranking.standings if each.overall}
        if totals:
            assert totals["zero"].total.rate == 0
            assert totals["expert"].rank == 1


def test_results_of_a_former_protocol_are_in_its_folder(board: Board) -> None:
    (first,) = [ranking for ranking in board.former if ranking.protocol.version == 1]
    assert first.digest == "4410493f7965acd8"
    for ranking in rankings(board):
        former = ranking is not board.current
        for standing in ranking.standings:
            for submission in standing.submissions:
                assert submission.folder.startswith(f"v{ranking.protocol.version}/") == former


def test_results_of_schema_version_1_are_read(board: Board) -> None:
    former = 0
    for standing in [standing for ranking in rankings(board) for standing in ranking.standings]:
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
    if stored[separator - 1].endswith(" verified |"):
        stored[separator] = stored[separator].removesuffix("---|")
        methods = len(board.current.standings)
        for k in (separator - 1, *range(separator + 1, separator + 1 + methods)):
            stored[k] = re.sub(r" (verified|(\d+) of \2) \|$", "", stored[k])
    assert stored == as_markdown(board).splitlines()
