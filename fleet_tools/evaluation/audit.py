"""Audits of stored results: ranks that the data support, and scores on newly drawn scenes."""

from collections.abc import Sequence
from itertools import pairwise
from math import fsum, hypot
from pathlib import Path

import numpy as np
import pydantic

from fleet_tools.config.values import Number, Value
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.result import EpisodeResult, Evaluation
from fleet_tools.evaluation.result_folder import RESULT, load_evaluation
from fleet_tools.evaluation.scores import compare, is_trial, require_comparable, score
from fleet_tools.utils.crossed_statistics import crossed_interval
from fleet_tools.utils.statistics import told_apart


class Difference(Value):
    """A difference of success rates, with its 95% interval."""

    difference: Number
    low: Number
    high: Number


class NeighbouringRanks(Value):
    """Two neighbouring methods of a ranking.

    Attributes:
        better, worse: Their folders.
        rates: Their success rates.
        scenes: Number of scenes in which both have a trial.
        difference, low, high: Paired difference of the rates with its 95% interval.
        p_value: p-value of the paired test.
        proven: Whether the ranks are told, in all tests of the ranking together (Holm 1979).
    """

    better: str
    worse: str
    rates: tuple[Number, Number]
    scenes: pydantic.NonNegativeInt
    difference: Number
    low: Number
    high: Number
    p_value: Number
    proven: bool


def load_method(folder: Path) -> Evaluation:
    """Reads all evaluations in and below a folder as one, such as one policy for each task.

    Raises:
        ResultError: There is none, one is damaged, or they do not belong together.
    """
    folders = sorted(each.parent for each in folder.rglob(RESULT))
    if not folders:
        raise ResultError(
            f"{folder} holds no result. `fleet-tools evaluate --output {folder}` makes one."
        )
    parts = [load_evaluation(each) for each in folders]
    episodes: dict[tuple[str, str, int], EpisodeResult] = {}
    for path, part in zip(folders, parts, strict=True):
        require_comparable(parts[0].result, part.result)
        for episode in part.episodes:
            if episode.key in episodes:
                raise ResultError(
                    f"{path}: another result in {folder} has the same scenes (such as "
                    f"{episode.task} {episode.split} {episode.index}). Give the folder of one "
                    "method and level."
                )
            episodes[episode.key] = episode
    return Evaluation(parts[0].result, list(episodes.values()))


def neighbouring_ranks(folders: Sequence[Path]) -> list[NeighbouringRanks]:
    """Ranks methods by success, and tests each against the next in the same scenes.

    Raises:
        ResultError: There are fewer than two methods, or they have not the same scenes.
    """
    if len(folders) < 2:
        raise ResultError(f"A ranking needs at least two methods; given: {len(folders)}.")
    methods = [(str(folder), load_method(folder)) for folder in folders]
    for name, each in methods:
        if {e.key for e in each.episodes} != {e.key for e in methods[0][1].episodes}:
            raise ResultError(
                f"{name} and {methods[0][0]} have different scenes. Complete both by running the "
                "commands that made them."
            )
    rates = {
        name: score(each.result.protocol, each.episodes).total.success.rate or 0.0
        for name, each in methods
    }
    methods.sort(key=lambda method: (-rates[method[0]], method[0]))
    compared = [
        (one, other, compare(first, second).total)
        for (one, first), (other, second) in pairwise(methods)
    ]
    proven = told_apart([total.p_value for *_, total in compared])
    return [
        NeighbouringRanks(
            better=one,
            worse=other,
            rates=(rates[one], rates[other]),
            scenes=total.both + total.only_first + total.only_second + total.neither,
            difference=total.difference or 0.0,
            low=total.low,
            high=total.high,
            p_value=total.p_value,
            proven=told,
        )
        for (one, other, total), told in zip(compared, proven, strict=True)
    ]


class Redrawn(Value):
    """Success on public scenes and on redrawn ones.

    Attributes:
        drops: Success rate on public scenes less that on redrawn ones, by learner.
        pooled: Mean of the drops, with the interval for other scenes of both kinds.
    """

    drops: dict[str, Number]
    pooled: Difference


def redrawn(public: Sequence[Path], fresh: Sequence[Path]) -> Redrawn:
    """Compares each learner's result on public scenes with its result on redrawn ones.

    The learners are fixed, and scenes are drawn: a scene counts once, by the mean of the learners
    that acted in it. The interval of the difference comes from the score intervals of both sides
    (Newcombe 1998, method 10).

    Args:
        public: Folder of each learner's result on public scenes.
        fresh: Folders of the results of the same learners on redrawn scenes, in the same order.

    Raises:
        ResultError: The folders do not fit together.
    """
    if len(public) != len(fresh) or not public:
        raise ResultError(
            "Expected one result on public scenes and one on fresh scenes for each learner; given: "
            f"{len(public)} and {len(fresh)} folders."
        )
    pairs = [
        (load_method(one), load_method(other)) for one, other in zip(public, fresh, strict=True)
    ]
    drops = {}
    for folder, other, (one, two) in zip(public, fresh, pairs, strict=True):
        policies = [(each.result.policy.name, each.result.policy.content_digest)
                    for each in (one, two)]  # fmt: skip
        if policies[0] != policies[1]:
            raise ResultError(
                f"{folder} and {other} belong to different policies ({policies[0]}, "
                f"{policies[1]}). Give the learners in the same order with --public and --fresh."
            )
        if {(e.task, e.split) for e in one.episodes} != {(e.task, e.split) for e in two.episodes}:
            raise ResultError(
                f"{folder} and {other} have different tasks or splits. Evaluate both on the same "
                "ones."
            )
        if {e.seed for e in one.episodes} & {e.seed for e in two.episodes}:
            raise ResultError(
                f"{folder} and {other} share scenes, but --fresh needs results on newly drawn "
                "scenes."
            )
        rates = [_rate(_strata([each])) for each in (one, two)]
        drops[str(folder)] = rates[0] - rates[1]
    sides = [_strata([pair[side] for pair in pairs]) for side in (0, 1)]
    (p, (low_p, high_p)), (q, (low_q, high_q)) = (
        (_rate(side), crossed_interval(side)) for side in sides
    )
    difference = fsum(drops.values()) / len(drops)
    return Redrawn(
        drops=drops,
        pooled=Difference(
            difference=difference,
            low=difference - hypot(p - low_p, high_q - q),
            high=difference + hypot(high_p - p, q - low_q),
        ),
    )


def _rate(strata: Sequence[np.ndarray]) -> float:
    return fsum(float(table.mean()) for table in strata) / len(strata)


def _strata(evaluations: Sequence[Evaluation]) -> list[np.ndarray]:
    """Returns the mean success of learners by scene, (1, scenes) for each stratum.

    A stratum is a task and split, and a learner, too, unless all learners have the same scenes.
    """
    outcomes: list[dict[tuple[str, str], dict[int, bool]]] = []
    for each in evaluations:
        of_learner: dict[tuple[str, str], dict[int, bool]] = {}
        for episode in filter(is_trial, each.episodes):
            of_learner.setdefault((episode.task, episode.split), {})[episode.seed] = episode.success
        outcomes.append(of_learner)
    seeds = [{key: set(scenes) for key, scenes in each.items()} for each in outcomes]
    if all(each == seeds[0] for each in seeds):
        return [
            np.mean([[each[key][seed] for seed in sorted(seeds[0][key])] for each in outcomes], 0)[
                None
            ]
            for key in seeds[0]
        ]
    return [np.array([[*scenes.values()]], float) for each in outcomes for scenes in each.values()]
