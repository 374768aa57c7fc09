"""Success rates with intervals, from episodes."""

from collections.abc import Callable, Iterable, Sequence

from fleet_tools.envs.outcomes import POLICY_ERROR, SIMULATION_ERROR, WORKER_ERROR
from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.evaluation.result import EpisodeResult, Rate, Score, Scores
from fleet_tools.utils.statistics import (
    Counts,
    stratified_interval,
    stratified_rate,
)

Episodes = Sequence[EpisodeResult]


def score(protocol: Protocol, episodes: Episodes) -> Scores:
    """Computes all numbers of a result; the order of the episodes does not matter.

    Args:
        protocol: The protocol.
        episodes: Results of all or some of its trials; tasks and splits without any are left out.
    """
    by_task = _grouped(protocol.tasks, episodes, lambda episode: episode.task)
    by_split = _grouped(protocol.splits, episodes, lambda episode: episode.split)
    strata = {
        task: _grouped(protocol.splits, of_task, lambda episode: episode.split)
        for task, of_task in by_task.items()
    }
    return Scores(
        total=_score([stratum for of_task in strata.values() for stratum in of_task.values()]),
        tasks={task: _score([of_task]) for task, of_task in by_task.items()},
        splits={split: _score([of_split]) for split, of_split in by_split.items()},
        strata={
            task: {split: _score([stratum]) for split, stratum in of_task.items()}
            for task, of_task in strata.items()
        },
    )


def is_trial(episode: EpisodeResult) -> bool:
    """Returns whether an episode counts: all do, except those in which the simulator failed."""
    return episode.outcome != SIMULATION_ERROR


def _grouped(
    names: Iterable[str], episodes: Episodes, name_of: Callable[[EpisodeResult], str]
) -> dict[str, Episodes]:
    groups = {name: [e for e in episodes if name_of(e) == name] for name in names}
    return {name: group for name, group in groups.items() if group}


def _score(strata: Sequence[Episodes]) -> Score:
    outcomes = [episode.outcome for stratum in strata for episode in stratum]
    trials = [[episode for episode in stratum if is_trial(episode)] for stratum in strata]
    return Score(
        success=_rate([(sum(e.success for e in stratum), len(stratum)) for stratum in trials]),
        success_once=_rate(
            [(sum(e.success_once for e in stratum), len(stratum)) for stratum in trials]
        ),
        simulation_errors=outcomes.count(SIMULATION_ERROR),
        policy_errors=outcomes.count(POLICY_ERROR),
        worker_errors=outcomes.count(WORKER_ERROR),
    )


def _rate(strata: Sequence[Counts]) -> Rate:
    successes, trials = (sum(counts) for counts in zip(*strata, strict=True)) if strata else (0, 0)
    low, high = stratified_interval(strata)
    return Rate(
        successes=successes, trials=trials, rate=stratified_rate(strata), low=low, high=high
    )
