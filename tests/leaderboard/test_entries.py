"""The results in the repository are accepted, and its page shows their numbers."""

import json

import pytest
from support.processes import ROOT
from support.submitted import overall

from fleet_tools.envs.observation_modes import canonical_kwargs
from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.evaluation.protocol import protocol_digest, task_digests
from fleet_tools.evaluation.protocol_file import former_digests, load_protocol
from fleet_tools.evaluation.result_file import RESULT
from fleet_tools.leaderboard.board import Board, Ranking, former_rankings, present_rankings
from fleet_tools.leaderboard.markdown import as_markdown
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
    return Board(
        CURRENT, digest, present_rankings(present, CURRENT, digest), former_rankings(former)
    )


def rankings(board: Board) -> list[Ranking]:
    return [*board.rankings, *board.former]


def test_every_entry_is_verified(board: Board) -> None:
    assert [ranking.kind for ranking in board.rankings] == ["observations", "privileged"]


def test_zero_never_succeeds_and_the_expert_always_does(board: Board) -> None:
    for standings in (board.standings, *(ranking.standings for ranking in board.former)):
        totals = {each.name: overall(each).total.rate for each in standings if each.overall}
        assert totals["zero"] == 0
        assert totals["expert"] == 1


def test_results_of_a_former_protocol_are_in_its_folder(board: Board) -> None:
    (first,) = [ranking for ranking in board.former if ranking.protocol.version == 1]
    assert first.digest == "4410493f7965acd8"
    for ranking in rankings(board):
        former = ranking in board.former
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
                env_kwargs = canonical_kwargs(stored["policy"]["environment"])
                assert submission.policy.env_kwargs == env_kwargs
                assert (scores := submission.evaluation.result.scores) is not None
                assert scores.total.success.model_dump() == stored["scores"]["total"]["end"]
                assert (
                    scores.total.success_once.model_dump() == stored["scores"]["total"]["any_time"]
                )
    assert former == 30


def test_the_stored_page_follows_from_the_results(board: Board) -> None:
    stored = (ROOT / "leaderboard" / "index.md").read_text()
    assert stored.splitlines() == as_markdown(board).splitlines()
