"""Methods, their numbers and their ranks, from episodes alone.

A method is all results of one name. Those of one training seed are a training, which may consist of
several results that cover different tasks, as where each tool has a policy of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np

from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.evaluation.result import EpisodeResult, Score, Scores
from fleet_tools.evaluation.scores import is_trial, score
from fleet_tools.leaderboard.submissions import Submission
from fleet_tools.utils.statistics import crossed_interval


@dataclass(frozen=True)
class Success:
    """How often a method succeeds at the end.

    Attributes:
        rate: The mean over its trainings; None without trials.
        low, high: The 95% interval: of a single training, what its result says; of several,
            `crossed_interval`'s.
        of_trainings: The rate of each of them.
    """

    rate: float | None
    low: float
    high: float
    of_trainings: tuple[float | None, ...]


@dataclass(frozen=True)
class Training:
    """Whatever one training seed gave.

    Attributes:
        seed: None where the method was not said to be trained several times.
        submissions: Its results.
        scores: Computed from all their episodes.
    """

    seed: int | None
    submissions: tuple[Submission, ...]
    scores: Scores

    @cached_property
    def episodes(self) -> list[EpisodeResult]:
        """Those of all its results."""
        return [e for s in self.submissions for e in s.evaluation.episodes]


@dataclass(frozen=True)
class Standing:
    """A row of the leaderboard.

    Attributes:
        name: The method's.
        trainings: All of them, by their seeds.
        total: Of all tasks and splits; None unless a training covers all tasks.
        any_time: The rate of success after any step, likewise.
        splits: Of all tasks, likewise, by split; empty where there is no total.
        tasks: Of those that are covered, by name.
        strata: By task, then by split.
        rank: 1 plus the number of methods whose whole interval of the total lies above this one's;
            None without a total.
    """

    name: str
    trainings: tuple[Training, ...]
    total: Success | None
    any_time: float | None
    splits: dict[str, Success]
    tasks: dict[str, Success]
    strata: dict[str, dict[str, Success]]
    rank: int | None = None

    @property
    def submissions(self) -> list[Submission]:
        """Those of all trainings."""
        return [submission for training in self.trainings for submission in training.submissions]

    @property
    def scores(self) -> list[Score]:
        """The total of each training, of whatever it covers."""
        return [training.scores.total for training in self.trainings]


def standings(submissions: Sequence[Submission], protocol: Protocol) -> list[Standing]:
    """Returns all methods, the best first; the order of the submissions changes nothing.

    Args:
        submissions: Without findings, so that no two are of the same.
        protocol: Of all of them.
    """
    ordered = sorted(submissions, key=_whose)
    rows = []
    for name, of_name in groupby(ordered, lambda s: s.evaluation.result.policy.name):
        trainings = [
            _training(list(group), protocol)
            for _, group in groupby(of_name, lambda s: s.evaluation.result.policy.training_seed)
        ]
        rows.append(_standing(name, trainings, protocol))
    ranked = [row for row in rows if row.total]
    places = ranks([(row.total.low, row.total.high) for row in ranked])
    ranked = [replace(row, rank=place) for row, place in zip(ranked, places, strict=True)]
    ranked.sort(key=lambda row: (row.rank, -(row.total.rate or 0.0), row.name))
    return ranked + [row for row in rows if not row.total]


def ranks(intervals: Sequence[tuple[float, float]]) -> list[int]:
    """Returns a rank for each interval: 1 plus the number of those that lie wholly above it.

    So no rank is claimed that the intervals do not bear out. Where all overlap, all are first;
    where none do, ranks count from 1. Of two that overlap, the lower one can rank behind the other
    only because a third one lies between.

    Args:
        intervals: Lower and upper bounds; those that touch overlap.
    """
    lows = sorted(low for low, _ in intervals)
    return [1 + len(lows) - int(np.searchsorted(lows, high, "right")) for _, high in intervals]


def _whose(submission: Submission) -> tuple:
    policy = submission.evaluation.result.policy
    seed = -1 if policy.training_seed is None else policy.training_seed
    return policy.name, seed, submission.folder


def _training(submissions: list[Submission], protocol: Protocol) -> Training:
    episodes = [e for submission in submissions for e in submission.evaluation.episodes]
    seed = submissions[0].evaluation.result.policy.training_seed
    return Training(seed, tuple(submissions), score(protocol, episodes))


def _standing(name: str, trainings: Sequence[Training], protocol: Protocol) -> Standing:
    whole = [t for t in trainings if len(t.scores.tasks) == len(protocol.tasks)]
    covered = {
        task: [training for training in trainings if task in training.scores.tasks]
        for task in protocol.tasks
    }
    covered = {task: group for task, group in covered.items() if group}
    pairs = [(task, split) for task in protocol.tasks for split in protocol.splits]
    return Standing(
        name=name,
        trainings=tuple(trainings),
        total=_success(whole, lambda s: s.total, [[pair] for pair in pairs]) if whole else None,
        any_time=_mean([t.scores.total.any_time.rate for t in whole]),
        splits={
            split: _success(
                whole, lambda s, split=split: s.splits[split], [[p for p in pairs if p[1] == split]]
            )
            for split in (protocol.splits if whole else ())
        },
        tasks={
            task: _success(
                group, lambda s, task=task: s.tasks[task], [[p for p in pairs if p[0] == task]]
            )
            for task, group in covered.items()
        },
        strata={
            task: {
                split: _success(
                    group,
                    lambda s, task=task, split=split: s.strata[task][split],
                    [[(task, split)]],
                )
                for split in protocol.splits
            }
            for task, group in covered.items()
        },
    )


def _success(
    trainings: Sequence[Training],
    score_of: Callable[[Scores], Score],
    strata: Sequence[Sequence[tuple[str, str]]],
) -> Success:
    """Success in some strata, each of one or more pairs of task and split."""
    rates = [score_of(training.scores).end for training in trainings]
    if len(trainings) == 1:
        low, high = rates[0].low, rates[0].high
    else:
        low, high = crossed_interval([_table(trainings, pairs) for pairs in strata])
    of_trainings = tuple(rate.rate for rate in rates)
    return Success(_mean(of_trainings), low, high, of_trainings)


def _table(trainings: Sequence[Training], pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """Returns (trainings, scenes): 1 success, 0 failure, NaN where the simulator failed."""
    rows = [
        {
            episode.key: float(episode.success) if is_trial(episode) else np.nan
            for episode in training.episodes
            if (episode.task, episode.split) in pairs
        }
        for training in trainings
    ]
    return np.array([[row[key] for key in sorted(rows[0])] for row in rows])


def _mean(rates: Sequence[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) / len(known) if known else None
