"""Success rates with intervals, and comparisons of two results scene by scene."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import pydantic

from fleet_tools.config.tasks import GentleLimits
from fleet_tools.config.values import Number, Value
from fleet_tools.dataset.carried_models import other_models
from fleet_tools.envs.outcomes import POLICY_ERROR, SIMULATION_ERROR, WORKER_ERROR
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.evaluation.result import (
    AnytimeVerdict,
    EpisodeResult,
    Evaluation,
    Rate,
    Result,
    Score,
    Scores,
)
from fleet_tools.utils.drake_release import incomparable_drake
from fleet_tools.utils.statistics import (
    Counts,
    paired_difference,
    paired_interval,
    paired_p_value,
    stratified_interval,
    stratified_rate,
)

Episodes = Sequence[EpisodeResult]
Pair = tuple[EpisodeResult, EpisodeResult]
Limits = Mapping[str, GentleLimits | None]


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
    scored = partial(_score, {task: protocol.gentle_limits(task) for task in by_task})
    return Scores(
        total=scored([stratum for of_task in strata.values() for stratum in of_task.values()]),
        tasks={task: scored([of_task]) for task, of_task in by_task.items()},
        splits={split: scored([of_split]) for split, of_split in by_split.items()},
        strata={
            task: {split: scored([stratum]) for split, stratum in of_task.items()}
            for task, of_task in strata.items()
        },
    )


def is_trial(episode: EpisodeResult) -> bool:
    """Returns whether an episode counts: all do in which the policy acted, or could have.

    Where the simulator fails after the policy has acted, the policy may have made it fail.
    """
    return episode.outcome != SIMULATION_ERROR or episode.steps > 0


def _grouped(
    names: Iterable[str], episodes: Episodes, name_of: Callable[[EpisodeResult], str]
) -> dict[str, Episodes]:
    groups = {name: [e for e in episodes if name_of(e) == name] for name in names}
    return {name: group for name, group in groups.items() if group}


def _score(limits: Limits, strata: Sequence[Episodes]) -> Score:
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
        gentle=_gentle(limits, trials),
        contact_metrics=_mean_contact_metrics(trials),
    )


def _gentle(limits: Limits, strata: Sequence[Episodes]) -> Rate | None:
    gentle = [
        [each.gentle(limits[each.task]) for each in stratum if each.steps] for stratum in strata
    ]
    of_all = [each for stratum in gentle for each in stratum]
    if not of_all or None in of_all:
        return None
    # An episode that never began is no success.
    counts = [sum(map(bool, each)) for each in gentle]
    return _rate([(count, len(stratum)) for count, stratum in zip(counts, strata, strict=True)])


def _mean_contact_metrics(strata: Sequence[Episodes]) -> dict[str, float] | None:
    contact_metrics = [
        [episode.contact_metrics for episode in stratum if episode.steps] for stratum in strata
    ]
    if any(each is None for stratum in contact_metrics for each in stratum):
        return None
    numbers = [
        [each.numbers() for each in stratum if each is not None] for stratum in contact_metrics
    ]
    of_strata = [_mean(stratum) for stratum in numbers if stratum]
    return _mean(of_strata) if of_strata else None


def _mean(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


def _rate(strata: Sequence[Counts]) -> Rate:
    successes, trials = (sum(counts) for counts in zip(*strata, strict=True)) if strata else (0, 0)
    low, high = stratified_interval(strata)
    return Rate(
        successes=successes, trials=trials, rate=stratified_rate(strata), low=low, high=high
    )


class SuccessDifference(Value):
    """Difference of two policies' success, scene by scene.

    Attributes:
        both, only_first, only_second, neither: Numbers of scenes by which policies succeeded.
        difference: Difference of the success rates, first minus second, as the mean over all pairs
            of task and split; None without scenes.
        low, high: Its 95% interval, by a score test, see `fleet_tools.utils.statistics`.
        p_value: p-value of the same test, below 5% exactly where the interval excludes 0.
    """

    both: pydantic.NonNegativeInt
    only_first: pydantic.NonNegativeInt
    only_second: pydantic.NonNegativeInt
    neither: pydantic.NonNegativeInt
    difference: Number | None
    low: Number
    high: Number
    p_value: Number


class Comparison(Value):
    """Comparison of two results.

    Attributes:
        first, second: Names of the policies, see `PolicyProvenance.label`.
        left_out: Number of scenes in which not both results have a trial, see `is_trial`.
        total: Difference over all scenes.
        tasks: Difference over the scenes of each task.
        anytime: What may be told after any scene, where the evaluation was made for it.
    """

    first: str
    second: str
    left_out: pydantic.NonNegativeInt
    total: SuccessDifference
    tasks: dict[str, SuccessDifference]
    anytime: AnytimeVerdict | None = None


def compare(first: Evaluation, second: Evaluation) -> Comparison:
    """Compares two results; exchanging them changes the signs only.

    Raises:
        ResultError: They are of different protocols, or of different scenes.
    """
    require_comparable(first.result, second.result)
    pairs, left_out = paired(first.episodes, second.episodes)
    return Comparison(
        first=first.result.policy.label,
        second=second.result.policy.label,
        left_out=left_out,
        total=success_difference(pairs),
        tasks={
            task: success_difference(of_task)
            for task in first.result.protocol.tasks
            if (of_task := [pair for pair in pairs if pair[0].task == task])
        },
    )


def require_comparable(first: Result, second: Result) -> None:
    """Checks that two results are of the same scenes.

    Raises:
        ResultError: They are of different protocols, task files, robots, models or physics.
    """
    if first.policy.robot != second.policy.robot:
        raise ResultError(
            f"{first.policy.label!r} and {second.policy.label!r} were evaluated on different "
            "robots, which start scenes with different joint positions. Compare results of the "
            "same robot."
        )
    if first.protocol_digest != second.protocol_digest:
        one, other = first.protocol, second.protocol
        levels = (one.name, one.version) == (other.name, other.version) and one.level != other.level
        raise ResultError(
            f"{first.policy.name!r} was evaluated by {first.protocol.title!r} "
            f"({first.protocol_digest}), {second.policy.name!r} by {second.protocol.title!r} "
            f"({second.protocol_digest}). Only results of the same protocol and task files can be "
            f"compared.{' Use `evaluate --nominal` for the cost of a level.' * levels}"
        )
    require_same_physics(first, second)


def require_same_physics(first: Result, second: Result) -> None:
    """Checks that two results are of the same models, and of releases of Drake that compare.

    Raises:
        ResultError: They are not.
    """
    if differing := other_models(first.models, second.models):
        raise ResultError(
            f"{first.policy.name!r} and {second.policy.name!r} were evaluated with different "
            f"models: {differing}. Only results of the same models can be compared."
        )
    releases = [result.packages.get("drake") for result in (first, second)]
    other_physics = {*map(incomparable_drake, (first.packages, second.packages))} - {None}
    if releases[0] != releases[1] and other_physics:
        raise ResultError(
            f"{first.policy.name!r} was evaluated with Drake {releases[0]}, {second.policy.name!r} "
            f"with {releases[1]}, and their physics may differ: "
            f"{'; '.join(map(str, other_physics))}. Compare results of releases with the same "
            "physics."
        )


def paired(first: Episodes, second: Episodes) -> tuple[list[Pair], int]:
    """Returns the pairs of episodes in the same scenes, and the number of scenes without a pair.

    Those that are no trials (`is_trial`) are no pairs.

    Raises:
        ResultError: Episodes of the same trial began in different scenes.
    """
    firsts, seconds = ({episode.key: episode for episode in side} for side in (first, second))
    pairs = [(firsts[key], seconds[key]) for key in firsts if key in seconds]
    for one, other in pairs:
        digests = {one.scene_digest, other.scene_digest} - {None}
        if len(digests) > 1:
            raise ResultError(
                f"Episode {one.index} of {one.task}, {one.split}, began in different scenes in the "
                "two results. One of them was made with other models, or was edited."
            )
    counted = [pair for pair in pairs if all(map(is_trial, pair))]
    return counted, len(firsts.keys() | seconds.keys()) - len(counted)


def success_difference(pairs: Sequence[Pair]) -> SuccessDifference:
    """Returns the difference over pairs of episodes; exchanging them changes the signs only."""
    strata = [
        _discordant([pair for pair in pairs if (pair[0].task, pair[0].split) == name])
        for name in {(one.task, one.split) for one, _ in pairs}
    ]
    both, only_first, only_second, neither = (
        sum((one.success, other.success) == outcome for one, other in pairs)
        for outcome in ((True, True), (True, False), (False, True), (False, False))
    )
    low, high = paired_interval(strata)
    return SuccessDifference(
        both=both,
        only_first=only_first,
        only_second=only_second,
        neither=neither,
        difference=paired_difference(strata),
        low=low,
        high=high,
        p_value=paired_p_value(strata),
    )


def _discordant(pairs: Sequence[Pair]) -> tuple[int, int, int]:
    first = sum(one.success and not other.success for one, other in pairs)
    second = sum(other.success and not one.success for one, other in pairs)
    return first, second, len(pairs)
