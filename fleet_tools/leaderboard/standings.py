"""Methods, their success rates and ranks, computed from episodes alone.

Ranks come from what the host ran in the fresh scenes. A training run is all policies of one
training seed: one policy for all tasks, or one for each.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from fleet_tools.envs.outcomes import POLICY_ERROR, SIMULATION_ERROR, TIME_LIMIT, WORKER_ERROR
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.level_cost import PairedDifference
from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.evaluation.result import EpisodeResult, Evaluation
from fleet_tools.evaluation.scores import is_trial
from fleet_tools.leaderboard.board import (
    TRACKS,
    Board,
    LevelScore,
    Method,
    Rejection,
    SuccessRate,
)
from fleet_tools.leaderboard.checks import read_submitted
from fleet_tools.leaderboard.entries import Entry, EntryPolicy, read_entries, without_imitations
from fleet_tools.leaderboard.host import (
    HOST,
    LEAST_SCENES,
    Round,
    Verification,
    evaluation_digest,
    key,
    read_round,
    read_verification,
)
from fleet_tools.leaderboard.letters import method_letters
from fleet_tools.leaderboard.verification import (
    SAME_SHARE,
    host_evaluations,
    is_same,
    same_share,
    track_of,
)
from fleet_tools.utils.crossed_statistics import (
    crossed_interval,
    crossed_paired_difference,
    crossed_paired_interval,
)

LATE = "later"
"""Greater than all times."""

Episodes = Sequence[EpisodeResult]
Runs = Mapping[int | None, Episodes]
"""Episodes by training seed."""


@dataclass(frozen=True)
class Standing:
    """A method and the episodes from which it follows.

    Attributes:
        entry: The entry.
        method: The method.
        host: What the host ran of each policy.
        submitted: By level, the submitted results.
    """

    entry: Entry
    method: Method
    host: Mapping[EntryPolicy, Evaluation] = field(default_factory=dict)
    submitted: Mapping[str, Sequence[Evaluation]] = field(default_factory=dict)


def make_board(
    root: Path, levels: Sequence[Protocol], least_scenes: int = LEAST_SCENES
) -> tuple[Board, list[Standing]]:
    """Returns the board of a leaderboard's folder, and its methods with their episodes.

    Args:
        root: The folder.
        levels: Levels of the protocol, the easiest first.
        least_scenes: Number of fresh scenes of each task from which on a method can have a rank.

    Raises:
        ResultError: There is no such folder, or the host's record of the round is damaged.
    """
    entries, rejections = read_entries(root)
    round_ = read_round(root)
    received = {} if round_ is None else round_.received
    order = [name.split()[0] for name in sorted(received, key=lambda each: received[each])]
    entries, imitations = without_imitations(entries, order)
    standings = []
    for entry in entries:
        standing, problems = _standing(root, entry, levels, round_)
        standings.append(standing)
        rejections += problems
    standings = _without_copies(standings, received)
    if round_ is not None:
        standings = _ranked(standings, round_.protocol, least_scenes)
    board = Board(
        levels=[(level.level_name, level.description) for level in levels],
        methods=tuple(standing.method for standing in standings),
        rejections=tuple(sorted([*rejections, *imitations], key=lambda each: each.folder)),
        seed_published=round_.seed if round_ and round_.published else None,
    )
    return board, standings


def _standing(
    root: Path, entry: Entry, levels: Sequence[Protocol], round_: Round | None
) -> tuple[Standing, list[Rejection]]:
    """Returns a method without a rank, and what of it is rejected."""
    problems: list[Rejection] = []
    verification, host = None, {}
    try:
        verification = read_verification(root, entry.name) if round_ else None
        if verification is not None and round_ is not None:
            host = dict(host_evaluations(root, entry, round_, verification))
    except ResultError as error:
        problems.append(Rejection(f"{HOST}/{entry.name}", str(error)))
        verification = None
    submitted = _submitted(entry, levels, verification, host, problems)
    file, policies = entry.file, [each.result.policy for each in host.values()]
    runs = _runs(host.values())
    shown, protocol = (runs, round_.protocol) if host and round_ else ({}, levels[0])
    if not file.policies:
        shown = _runs(submitted.get(protocol.level_name, ()))
    method = Method(
        name=entry.name,
        title=file.title,
        description=file.description,
        track=track_of(policies) if policies else file.track,
        score=_total(runs, protocol) if host else None,
        levels=_level_scores(submitted, levels),
        tasks=_rates(shown, protocol, 0),
        splits=_rates(shown, protocol, 1),
        failures=_failures(each for run in shown.values() for each in run),
        self_reported=not file.policies,
        provenance=_provenance(entry, host, verification, round_),
    )
    return Standing(entry, method, host, submitted), problems


def _submitted(
    entry: Entry,
    levels: Sequence[Protocol],
    verification: Verification | None,
    host: Mapping[EntryPolicy, Evaluation],
    problems: list[Rejection],
) -> dict[str, list[Evaluation]]:
    """Returns submitted results by level, without those that are wrong, which it adds to these."""
    found: dict[str, list[Evaluation]] = {}
    taken: dict[tuple[str, int | None, str], str] = {}
    for folder in entry.result_folders():
        inside = folder.relative_to(entry.folder).as_posix()
        try:
            evaluation = read_submitted(entry, folder, levels)
            policy, level = evaluation.result.policy, evaluation.result.protocol.level_name
            if host and not any(is_same(policy, each.result.policy) for each in host.values()):
                raise ResultError(
                    f"it belongs to the policy {policy.source!r}, which is not in the entry"
                )
            for task in dict.fromkeys(episode.task for episode in evaluation.episodes):
                other = taken.setdefault((level, policy.training_seed, task), inside)
                if other != inside:
                    raise ResultError(
                        f"{other} already has results of {task} with this training seed"
                    )
            known = verification.checked.get(inside) if verification else None
            if known and known[0] == evaluation_digest(evaluation) and known[1]:
                raise ResultError(known[1])
        except ResultError as error:
            problems.append(Rejection(f"entries/{entry.name}/{inside}", str(error)))
        else:
            found.setdefault(level, []).append(evaluation)
    return found


def _provenance(
    entry: Entry,
    host: Mapping[EntryPolicy, Evaluation],
    verification: Verification | None,
    round_: Round | None,
) -> dict[str, str]:
    file = entry.file
    facts = {
        "policies": "; ".join(
            f"{each.policy} ({'all tasks' if each.tasks == 'all' else ', '.join(each.tasks)}"
            f"{'' if each.training_seed is None else f', training seed {each.training_seed}'})"
            for each in file.policies
        ),
        "hashes": ", ".join(each[:16] for each in entry.contents.values()),
        "commands": "; ".join(line for command in file.commands for line in command.lines()),
    }
    if verification is not None and round_ is not None and host:
        first = next(iter(host.values())).result
        scenes = Counter(episode.task for each in host.values() for episode in each.episodes)
        facts |= {
            "observations": "; ".join(
                dict.fromkeys(
                    ", ".join(f"{k}={v}" for k, v in each.result.policy.env_kwargs.items())
                    or "obs_mode=state"
                    for each in host.values()
                )
            ),
            "received": max(round_.received.get(key(entry, each), "") for each in host),
            "verified": verification.verified,
            "fresh scenes": ", ".join(f"{count} of {task}" for task, count in scenes.items()),
            "hash of the seed": verification.commitment,
            "versions": ", ".join(f"{name} {v}" for name, v in verification.packages.items()),
            "hardware": f"{first.machine.processor}; {first.machine.system}",
        }
    elif file.policies:
        facts["verified"] = "not yet, so without a rank"
    return {name: text for name, text in facts.items() if text}


# --- Rates ----------------------------------------------------------------------------------


def _runs(evaluations: Iterable[Evaluation]) -> dict[int | None, list[EpisodeResult]]:
    runs: dict[int | None, list[EpisodeResult]] = {}
    for each in evaluations:
        runs.setdefault(each.result.policy.training_seed, []).extend(each.episodes)
    return runs


def _covering(runs: Runs, tasks: Sequence[str]) -> Runs:
    """Returns those training runs that cover all tasks."""
    return {seed: e for seed, e in runs.items() if {*tasks} <= {each.task for each in e}}


def outcome_tables(runs: Runs, protocol: Protocol) -> dict[tuple[str, str], np.ndarray]:
    """Returns outcomes by pair of task and split: 1 success, 0 failure, NaN no trial.

    Each table is (runs, scenes).
    """
    rows = [
        {each.key: float(each.success) for each in episodes if is_trial(each)}
        for episodes in runs.values()
    ]
    return {
        (task, split): np.array(
            [[row.get((task, split, k), np.nan) for k in range(scenes.scenes)] for row in rows]
        )
        for task in protocol.tasks
        for split, scenes in protocol.splits.items()
    }


def _rate(strata: Iterable[np.ndarray]) -> SuccessRate:
    tables = [*strata]
    return SuccessRate(crossed_paired_difference(tables), *crossed_interval(tables))


def _total(runs: Runs, protocol: Protocol) -> SuccessRate | None:
    covering = _covering(runs, protocol.tasks)
    return _rate(outcome_tables(covering, protocol).values()) if covering else None


def _rates(runs: Runs, protocol: Protocol, place: int) -> dict[str, SuccessRate]:
    """Returns the rate of each task (place 0 of a pair) or split (1), over what there is of it."""
    by_name: dict[str, list[np.ndarray]] = {}
    for pair, table in (outcome_tables(runs, protocol) if runs else {}).items():
        by_name.setdefault(pair[place], []).append(table)
    joined = {name: np.concatenate(tables, axis=1) for name, tables in by_name.items()}
    return {name: _rate([table]) for name, table in joined.items() if np.isfinite(table).any()}


def _level_scores(
    submitted: Mapping[str, Sequence[Evaluation]], levels: Sequence[Protocol]
) -> dict[str, LevelScore | None]:
    nominal, scores = levels[0], {}
    easy = _runs(submitted.get(nominal.level_name, ()))
    for level in levels:
        runs = _covering(_runs(submitted.get(level.level_name, ())), level.tasks)
        if not runs:
            scores[level.level_name] = None
            continue
        rate = _rate(outcome_tables(runs, level).values())
        both = {seed: easy[seed] for seed in runs if seed in easy}
        paired = level is not nominal and both
        cost = _cost(both, {seed: runs[seed] for seed in both}, level) if paired else None
        scores[level.level_name] = LevelScore(rate.rate, rate.low, rate.high, cost)
    return scores


def _cost(easy: Runs, hard: Runs, level: Protocol) -> PairedDifference | None:
    """Returns by how much success is less at a level, in the scenes that differ in it alone."""
    seeds = {trial.key: trial.seed for trial in level.trials()}
    same = {s: [e for e in run if e.seed == seeds.get(e.key)] for s, run in easy.items()}
    harder = outcome_tables(hard, level)
    tables = [table - harder[pair] for pair, table in outcome_tables(same, level).items()]
    difference = crossed_paired_difference(tables)
    if difference is None:
        return None
    pairs = sum(int(np.isfinite(table).sum()) for table in tables)
    return PairedDifference(difference, *crossed_paired_interval(tables), pairs)


def _failures(episodes: Iterable[EpisodeResult]) -> dict[str, int]:
    return dict(Counter(_stage(each) for each in episodes if not each.success).most_common())


def _stage(episode: EpisodeResult) -> str:
    """Returns how far a failed episode came."""
    errors = {POLICY_ERROR: "policy error", WORKER_ERROR: "process lost"}
    errors |= {SIMULATION_ERROR: "simulation error"}
    if episode.outcome in errors:
        return errors[episode.outcome]
    if episode.success_once:
        return "done, then undone"
    metrics = episode.contact_metrics
    if metrics is not None and not metrics.object.contact_s:
        return "object not touched"
    return "not done in time" if episode.outcome == TIME_LIMIT else episode.outcome


# --- Copies and ranks -----------------------------------------------------------------------


def _without_copies(standings: Sequence[Standing], received: Mapping[str, str]) -> list[Standing]:
    """Returns methods that name others with the same actions; the later ones have no rank."""
    same: dict[str, list[str]] = {}
    copies: set[str] = set()
    for one, other in combinations(standings, 2):
        pairs = [
            [received.get(key(e.entry, p), LATE) for e, p in ((one, mine), (other, its))]
            for mine in one.entry.file.policies
            for its in other.entry.file.policies
            if _same(one, mine, other, its)
        ]
        if pairs:
            first, second = map(min, zip(*pairs, strict=True))
            copies |= {one.method.name} if first >= second else set()
            copies |= {other.method.name} if second >= first else set()
        if pairs or _same_results(one, other):
            same.setdefault(one.method.name, []).append(other.method.name)
            same.setdefault(other.method.name, []).append(one.method.name)
    marked = []
    for each in standings:
        name, facts = each.method.name, dict(each.method.provenance)
        if name in copies:
            facts["rank"] = "none: another method with the same actions was not received later"
        method = replace(each.method, same_actions_as=tuple(same.get(name, ())), provenance=facts)
        marked.append(replace(each, method=method))
    return marked


def _same(one: Standing, mine: EntryPolicy, other: Standing, its: EntryPolicy) -> bool:
    """Returns whether two policies have the same content, or act alike in the fresh scenes."""
    if one.entry.contents[mine] == other.entry.contents[its]:
        return True
    if mine not in one.host or its not in other.host:
        return False
    whole = one.method.track != other.method.track
    share = same_share(one.host[mine].episodes, other.host[its].episodes, whole=whole)
    return share >= SAME_SHARE


def _same_results(one: Standing, other: Standing) -> bool:
    """Returns whether two methods submitted the same actions at a level."""
    whole = one.method.track != other.method.track
    return any(
        same_share(mine.episodes, its.episodes, whole=whole) >= SAME_SHARE
        for level, results in one.submitted.items()
        for mine in results
        for its in other.submitted.get(level, ())
    )


def _ranked(standings: Sequence[Standing], protocol: Protocol, least_scenes: int) -> list[Standing]:
    """Returns methods with ranks and letters: by track, the best first, unranked ones last."""
    result = []
    for track in TRACKS:
        of_track = [each for each in standings if each.method.track == track]
        ranked = [each for each in of_track if _can_be_ranked(each, protocol, least_scenes)]
        ranked.sort(key=lambda each: -((each.method.score and each.method.score.rate) or 0.0))
        scores = [each.method.score for each in ranked if each.method.score]
        places = ranks([(score.low, score.high) for score in scores])
        runs = [_covering(_runs(each.host.values()), protocol.tasks) for each in ranked]
        letters = method_letters([[*outcome_tables(run, protocol).values()] for run in runs])
        named = [
            replace(each, method=replace(each.method, rank=place, letters=text))
            for each, place, text in zip(ranked, places, letters, strict=True)
        ]
        result += sorted(named, key=lambda each: each.method.rank or 0)
        result += [each for each in of_track if each not in ranked]
    return result


def _can_be_ranked(standing: Standing, protocol: Protocol, least_scenes: int) -> bool:
    """Returns whether a training run has enough fresh scenes of every task, and is no copy."""
    if standing.method.score is None or "rank" in standing.method.provenance:
        return False
    runs = _covering(_runs(standing.host.values()), protocol.tasks)
    counts = [Counter(e.task for e in episodes) for episodes in runs.values()]
    return all(each[task] >= least_scenes for each in counts for task in protocol.tasks)


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
