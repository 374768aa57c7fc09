"""A leaderboard of made-up results."""

from collections.abc import Sequence
from typing import Any

from support.submitted import (
    SMALL,
    evaluation_with,
    random_evaluation,
    submission,
)

from fleet_tools.envs.outcomes import SUCCESS, TIME_LIMIT
from fleet_tools.leaderboard.board import Board, Clip, RankedLevel, make_rankings
from fleet_tools.leaderboard.result_folders import Rejection
from fleet_tools.leaderboard.submissions import Submission

SUBMISSIONS = [
    submission(evaluation_with(lambda trial: SUCCESS, name="expert")),
    submission(evaluation_with(lambda trial: TIME_LIMIT, name="zero")),
    submission(
        evaluation_with(
            lambda trial: SUCCESS if trial.task == "knife" else TIME_LIMIT, name="only_knives"
        )
    ),
    submission(evaluation_with(lambda trial: SUCCESS, name="no_hammer", tasks=["knife"])),
    *(submission(random_evaluation(0.5, k, name="trained", training_seed=k)) for k in range(3)),
]
DIGEST = "0123456789abcdef"


def board(submissions: Sequence[Submission] = SUBMISSIONS, **others: Any) -> Board:
    return Board([RankedLevel(SMALL, DIGEST)], make_rankings(submissions, [SMALL]), **others)


EVERYTHING: dict[str, Any] = {
    "rejections": [Rejection("bad/one", "scores", "it claims <b>100%</b>")],
    "clips": {"expert": Clip(b"\0video", 384, 192, {"hammer": "success"})},
}
