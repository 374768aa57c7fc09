"""Published episodes whose actions are repeated, by programs that know nothing of `evaluate`."""

from functools import cache

import numpy as np
from support.processes import ROOT

from fleet_tools.evaluation.result import EpisodeResult, decode_actions
from fleet_tools.evaluation.result_folder import load_evaluation

RESULT = ROOT / "leaderboard/results/gated_refit/0/nominal"
"""A learner that fails in wrench/train/0 and 1, and in spatula/unseen_tools/8 after a success."""


@cache
def _episodes() -> dict[tuple[str, str, int], EpisodeResult]:
    return {episode.key: episode for episode in load_evaluation(RESULT).episodes}


def stored(task: str, number: int, split: str = "train") -> EpisodeResult:
    """Returns the result of a scene of the nominal level."""
    return _episodes()[task, split, number]


def stored_action(episode: EpisodeResult, step: int) -> np.ndarray:
    """Returns the action of a step, (6,), of the last one beyond the end."""
    actions = decode_actions(episode.actions)
    return actions[min(step, len(actions) - 1)]
