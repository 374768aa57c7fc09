"""Two results on the same scenes: which policy is better, and whether that may be chance."""

from collections.abc import Sequence

import pydantic

from fleet_tools.config.values import Number, Value
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.result import EpisodeResult, Evaluation, Result
from fleet_tools.evaluation.scores import is_trial
from fleet_tools.utils.statistics import mcnemar, paired_difference, paired_interval

Pair = tuple[EpisodeResult, EpisodeResult]


class Difference(Value):
    """How the success of two policies at the end differs, scene by scene.

    Attributes:
        both, only_first, only_second, neither: In how many scenes who succeeded.
        difference: Of the success rates, first minus second, as the mean over all pairs of task
            and split; None without scenes.
        low, high: Its 95% interval, by a stratified bootstrap of pairs.
        p_value: Of McNemar's exact test.
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
    """Two results, compared.

    Attributes:
        first, second: The policies' names.
        left_out: Scenes that only one of them has an episode of, or in which the simulator failed.
        total, tasks: The differences, of all scenes and of each task's.
    """

    first: str
    second: str
    left_out: pydantic.NonNegativeInt
    total: Difference
    tasks: dict[str, Difference]


def compare(first: Evaluation, second: Evaluation) -> Comparison:
    """Compares two results; with the two exchanged, all signs change and nothing else.

    Raises:
        ResultError: They are of different protocols, or of different scenes.
    """
    require_comparable(first.result, second.result)
    one, other = first.result, second.result
    pairs, left_out = _pairs(first.episodes, second.episodes)
    return Comparison(
        first=one.policy.name,
        second=other.policy.name,
        left_out=left_out,
        total=_difference(pairs),
        tasks={
            task: _difference(of_task)
            for task in one.protocol.tasks
            if (of_task := [pair for pair in pairs if pair[0].task == task])
        },
    )


def require_comparable(one: Result, other: Result) -> None:
    """Sees to it that two results are of the same scenes.

    Raises:
        ResultError: They are of different protocols or task files.
    """
    if one.protocol_digest != other.protocol_digest:
        raise ResultError(
            f"{one.policy.name!r} went through {one.protocol.title!r} ({one.protocol_digest}), "
            f"{other.policy.name!r} through {other.protocol.title!r} ({other.protocol_digest}). "
            "Only results of the same protocol and task files can be compared."
        )


def _pairs(
    first: Sequence[EpisodeResult], second: Sequence[EpisodeResult]
) -> tuple[list[Pair], int]:
    mine, its = ({episode.key: episode for episode in side} for side in (first, second))
    pairs = [(mine[key], its[key]) for key in mine if key in its]
    for one, other in pairs:
        digests = {one.scene_digest, other.scene_digest} - {None}
        if len(digests) > 1:
            raise ResultError(
                f"Episode {one.index} of {one.task}, {one.split}, began in another scene than the "
                "other result's, so one of the two was made with other models or is not genuine."
            )
    kept = [(one, other) for one, other in pairs if is_trial(one) and is_trial(other)]
    return kept, len(mine.keys() | its.keys()) - len(kept)


def _difference(pairs: Sequence[Pair]) -> Difference:
    strata = [
        _counts([pair for pair in pairs if (pair[0].task, pair[0].split) == name])
        for name in {(one.task, one.split) for one, _ in pairs}
    ]
    both, only_first, only_second, neither = (
        sum((one.success, other.success) == who for one, other in pairs)
        for who in ((True, True), (True, False), (False, True), (False, False))
    )
    low, high = paired_interval(strata)
    return Difference(
        both=both,
        only_first=only_first,
        only_second=only_second,
        neither=neither,
        difference=paired_difference(strata),
        low=low,
        high=high,
        p_value=mcnemar(only_first, only_second),
    )


def _counts(pairs: Sequence[Pair]) -> tuple[int, int, int]:
    first = sum(one.success and not other.success for one, other in pairs)
    second = sum(other.success and not one.success for one, other in pairs)
    return first, second, len(pairs)
