"""Methods, their success rates and their ranks, computed from episodes alone.

A method is all results of one name with the same depth cameras. Results of the same training seed
are one training run. It may consist of several results that cover different tasks, as where each
tool has a policy of its own.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Literal, get_args

import numpy as np

from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.evaluation.result import EpisodeResult, Rate, Score, Scores
from fleet_tools.evaluation.scores import is_trial, score
from fleet_tools.leaderboard.submissions import Submission
from fleet_tools.policies.sources import built_in_description
from fleet_tools.utils.crossed_statistics import crossed_interval

LeaderboardTrack = Literal["privileged", "keypoints", "clouds", "images"]
"""What a method reads: the simulator's state, perhaps, or nothing but such observations."""
TRACKS: tuple[LeaderboardTrack, ...] = get_args(LeaderboardTrack)
"""The tracks; who could read one of them knows more than who reads the next."""


@dataclass(frozen=True)
class SuccessRate:
    """Success rate of a method, which may have been trained several times.

    Attributes:
        rate: Mean over its training runs; None without trials.
        low, high: 95% interval: of a single training run, the one of its result; of several, see
            `fleet_tools.utils.crossed_statistics.crossed_interval`.
        of_training_runs: Rate of each training run.
    """

    rate: float | None
    low: float
    high: float
    of_training_runs: tuple[float | None, ...]


@dataclass(frozen=True)
class TrainingRun:
    """All results of one training seed of a method.

    Attributes:
        seed: Training seed; None if the results name none.
        submissions: The results.
        scores: Scores of all their episodes.
    """

    seed: int | None
    submissions: tuple[Submission, ...]
    scores: Scores

    @cached_property
    def episodes(self) -> list[EpisodeResult]:
        """Episodes of all its results."""
        return [each for result in self.submissions for each in result.evaluation.episodes]


@dataclass(frozen=True)
class Overall:
    """Performance of a method over all tasks of the protocol.

    Attributes:
        total: Success rate over all tasks and splits.
        success_once: Rate of success after any step, likewise; None without trials.
        splits: Success rate over all tasks, by split.
        gentle: Rate of gentle success over all tasks and splits; None if it is not known.
        contact_metrics: Means of `ContactMetrics.numbers`, likewise.
        rank: 1 plus the number of methods whose whole interval of the total lies above this one's;
            None if it is not ranked.
    """

    total: SuccessRate
    success_once: float | None
    splits: dict[str, SuccessRate]
    gentle: float | None = None
    contact_metrics: dict[str, float] | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Standing:
    """A method on the leaderboard.

    Attributes:
        label: Name of the method, with its depth cameras unless these are ideal.
        training_runs: All its training runs, by their seeds.
        overall: Performance over all tasks, by the training runs that cover them; None if there
            are none.
        tasks: Success rate in each covered task.
        strata: Success rate in each covered pair, by task, then by split.
    """

    label: str
    training_runs: tuple[TrainingRun, ...]
    overall: Overall | None
    tasks: dict[str, SuccessRate]
    strata: dict[str, dict[str, SuccessRate]]

    @property
    def name(self) -> str:
        """Name of the method."""
        return self.submissions[0].policy.name

    @property
    def sensors(self) -> str:
        """Its depth cameras."""
        return self.submissions[0].policy.sensors

    @property
    def submissions(self) -> list[Submission]:
        """Results of all training runs."""
        return [submission for run in self.training_runs for submission in run.submissions]

    @property
    def verified(self) -> bool:
        """Whether the host has verified all its results."""
        return all(submission.verified() for submission in self.submissions)

    @property
    def protocol(self) -> Protocol:
        """The level in which it is judged."""
        return self.submissions[0].evaluation.result.protocol

    @property
    def title(self) -> str:
        """Its label, with its level unless there is but one."""
        return self.label + (f", {self.protocol.level}" if self.protocol.level else "")

    @property
    def track(self) -> LeaderboardTrack:
        """What the method reads: as the one of its results which is told most."""
        return max(map(_track, self.submissions), key=TRACKS[::-1].index)

    @property
    def policies(self) -> int:
        """Number of policies of a training run, the largest one; one may serve several tools."""
        runs = [{_policy(each) for each in run.submissions} for run in self.training_runs]
        return max(map(len, runs))

    @property
    def description(self) -> str:
        """What the method is, in a line; empty if nothing says it."""
        first = self.submissions[0]
        if first.policy.kind == "built_in":
            return built_in_description(first.policy.source)
        return first.description

    @property
    def scores(self) -> list[Score]:
        """Total score of each training run, over whatever it covers."""
        return [run.scores.total for run in self.training_runs]


def _track(submission: Submission) -> LeaderboardTrack:
    policy = submission.policy
    return "privileged" if policy.track == "privileged" else policy.reads


def _policy(submission: Submission) -> tuple[str, str]:
    policy = submission.policy
    return policy.kind, policy.content_digest or policy.source


def make_standings(submissions: Sequence[Submission], protocol: Protocol) -> list[Standing]:
    """Returns all methods without ranks, by name; the order of the submissions does not matter.

    Args:
        submissions: Results without problems, so that no two are of the same run and task.
        protocol: Protocol of all of them.
    """
    return [_standing(label, runs, protocol) for label, runs in _methods(submissions, protocol)]


def rank_methods(standings: Sequence[Standing]) -> list[Standing]:
    """Returns methods with their ranks among each other, the best first."""
    totals = [standing.overall.total for standing in standings if standing.overall]
    rank = iter(ranks([(total.low, total.high) for total in totals]))
    ranked = [
        replace(standing, overall=standing.overall and replace(standing.overall, rank=next(rank)))
        for standing in standings
    ]
    return in_order(ranked)


def in_order(standings: Sequence[Standing]) -> list[Standing]:
    """Returns methods by their ranks and totals, the best first; those without a total last."""
    return sorted(standings, key=_order)


def ranks(intervals: Sequence[tuple[float, float]]) -> list[int]:
    """Returns a rank for each interval: 1 plus the number of those that lie wholly above it.

    Ranks therefore never claim more than the intervals show. If all intervals overlap, all ranks
    are 1; if none do, ranks count from 1. Of two that overlap, the lower one can have the greater
    rank only because a third one lies between.

    Args:
        intervals: Lower and upper limits; intervals that touch overlap.
    """
    lows = sorted(low for low, _ in intervals)
    return [1 + len(lows) - int(np.searchsorted(lows, high, "right")) for _, high in intervals]


def _order(standing: Standing) -> tuple[float, float, str]:
    if standing.overall is None:
        return math.inf, 0.0, standing.label
    return standing.overall.rank or 0, -(standing.overall.total.rate or 0.0), standing.label


def _methods(
    submissions: Sequence[Submission], protocol: Protocol
) -> Iterator[tuple[str, list[TrainingRun]]]:
    """Yields each method's label and training runs."""
    ordered = sorted(submissions, key=_policy_order)
    for label, of_method in groupby(ordered, lambda submission: submission.policy.label):
        by_seed = groupby(of_method, lambda submission: submission.policy.training_seed)
        yield label, [_training_run(seed, list(of_run), protocol) for seed, of_run in by_seed]


def _policy_order(submission: Submission) -> tuple[str, int, str]:
    seed = submission.policy.training_seed
    return submission.policy.label, -1 if seed is None else seed, submission.folder


def _training_run(
    seed: int | None, submissions: Sequence[Submission], protocol: Protocol
) -> TrainingRun:
    episodes = [each for submission in submissions for each in submission.evaluation.episodes]
    return TrainingRun(seed, tuple(submissions), score(protocol, episodes))


def _standing(label: str, runs: Sequence[TrainingRun], protocol: Protocol) -> Standing:
    covering = {
        task: of_task
        for task in protocol.tasks
        if (of_task := [run for run in runs if task in run.scores.tasks])
    }
    return Standing(
        label=label,
        training_runs=tuple(runs),
        overall=_overall(runs, protocol),
        tasks={
            task: _success_rate(
                of_task,
                [run.scores.tasks[task] for run in of_task],
                [[(task, split) for split in protocol.splits]],
            )
            for task, of_task in covering.items()
        },
        strata={
            task: {
                split: _success_rate(
                    of_task,
                    [run.scores.strata[task][split] for run in of_task],
                    [[(task, split)]],
                )
                for split in protocol.splits
            }
            for task, of_task in covering.items()
        },
    )


def covering_runs(runs: Sequence[TrainingRun], protocol: Protocol) -> list[TrainingRun]:
    """Returns those training runs that cover all tasks."""
    return [run for run in runs if len(run.scores.tasks) == len(protocol.tasks)]


def _overall(runs: Sequence[TrainingRun], protocol: Protocol) -> Overall | None:
    runs = covering_runs(runs, protocol)
    if not runs:
        return None
    pairs = [(task, split) for task in protocol.tasks for split in protocol.splits]
    return Overall(
        total=_success_rate(runs, [run.scores.total for run in runs], [[pair] for pair in pairs]),
        success_once=_mean([run.scores.total.success_once.rate for run in runs]),
        gentle=_mean_of_all([run.scores.total.gentle for run in runs]),
        contact_metrics=_mean_contact_metrics([run.scores.total.contact_metrics for run in runs]),
        splits={
            split: _success_rate(
                runs,
                [run.scores.splits[split] for run in runs],
                [[(task, split) for task in protocol.tasks]],
            )
            for split in protocol.splits
        },
    )


def _success_rate(
    runs: Sequence[TrainingRun],
    scores: Sequence[Score],
    strata: Sequence[Sequence[tuple[str, str]]],
) -> SuccessRate:
    """Returns the success rate of training runs in some strata.

    Args:
        runs: The training runs.
        scores: Score of each in these strata.
        strata: Pairs of task and split that each stratum consists of.
    """
    rates = [each.success for each in scores]
    if len(runs) == 1:
        low, high = rates[0].low, rates[0].high
    else:
        low, high = crossed_interval([outcome_table(runs, pairs) for pairs in strata])
    of_training_runs = tuple(rate.rate for rate in rates)
    return SuccessRate(_mean(of_training_runs), low, high, of_training_runs)


def outcome_table(runs: Sequence[TrainingRun], pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """Returns outcomes in the scenes of some pairs of task and split.

    Returns:
        (runs, scenes): 1 success, 0 failure, NaN where the simulator failed.
    """
    rows = [
        {
            episode.key: float(episode.success) if is_trial(episode) else np.nan
            for episode in run.episodes
            if (episode.task, episode.split) in pairs
        }
        for run in runs
    ]
    return np.array([[row[key] for key in sorted(rows[0])] for row in rows])


def _mean(rates: Sequence[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) / len(known) if known else None


def _mean_of_all(rates: Sequence[Rate | None]) -> float | None:
    known = [rate.rate for rate in rates if rate is not None]
    return _mean(known) if len(known) == len(rates) else None


def _mean_contact_metrics(runs: Sequence[dict[str, float] | None]) -> dict[str, float] | None:
    known = [numbers for numbers in runs if numbers is not None]
    if len(known) < len(runs):
        return None
    return {name: sum(each[name] for each in known) / len(known) for name in known[0]}
