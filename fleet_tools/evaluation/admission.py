"""Checks that a result is complete enough for an entry of the leaderboard."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.evaluation.protocol import Protocol, protocol_digest, task_digests
from fleet_tools.evaluation.protocol_file import load_levels
from fleet_tools.evaluation.result import Result
from fleet_tools.robot.arm import DEFAULT_ROBOT
from fleet_tools.utils.drake_release import incomparable_drake

Key = tuple[str, str, int]


@dataclass(frozen=True)
class Admission:
    """Whether a result can be part of an entry. Its rank comes from other scenes, see `verify`.

    Attributes:
        reasons: Why it cannot; empty if it can.
        absent_tasks: Tasks that it does not cover; other results of the entry may.
    """

    reasons: tuple[str, ...]
    absent_tasks: tuple[str, ...]

    @property
    def can_enter(self) -> bool:
        """Whether there is no reason against it."""
        return not self.reasons

    def __str__(self) -> str:
        """Returns a sentence."""
        if self.reasons:
            return f"This result cannot enter the leaderboard: {'; '.join(self.reasons)}."
        if self.absent_tasks:
            tasks = ", ".join(self.absent_tasks)
            return f"This result can enter the leaderboard; others have to cover {tasks}."
        return "This result can enter the leaderboard."


def admission(result: Result, keys: Collection[Key]) -> Admission:
    """Returns whether a result can be part of an entry once it has some episodes.

    Args:
        result: Description of the evaluation.
        keys: Its episodes by their identifiers, see `Trial.key`; present ones and those to come.
    """
    levels = load_levels(PROTOCOL)
    by_digest = {protocol_digest(each, task_digests(each)): each for each in levels.values()}
    required = by_digest.get(result.protocol_digest)
    tasks = (required or next(iter(levels.values()))).tasks
    absent = tuple(task for task in tasks if task not in {key[0] for key in keys})
    if required is None:
        known = "; ".join(f"{each.title!r} ({digest})" for digest, each in by_digest.items())
        reason = (
            f"it follows {result.protocol.title!r} ({result.protocol_digest}), and the leaderboard "
            f"has {known}; `python -m fleet_tools.leaderboard page DIR --protocol FILE`, with the "
            "file of its own protocol or task, shows those that follow it"
        )
        return Admission((reason,), absent)
    reasons = [reason.rstrip(".") for reason in objections(result, required)]
    if missing := missing_scenes(result.protocol, keys):
        reasons.append(f"it has only {missing}, and a tool needs all its scenes")
    return Admission(tuple(reasons[:1]), absent)


def objections(result: Result, protocol: Protocol) -> Iterator[str]:
    """Yields why a result does not compare with others of its level.

    Args:
        result: The result.
        protocol: The level.
    """
    policy = result.policy
    if policy.robot != DEFAULT_ROBOT:
        yield (
            f"its robot is {policy.robot!r}, but the leaderboard's scenes are for {DEFAULT_ROBOT!r}"
        )
    if protocol.sensors not in (None, policy.sensors):
        yield (
            f"its cameras are {policy.sensors!r}, but {protocol.title!r} needs {protocol.sensors!r}"
        )
    if other_physics := incomparable_drake(result.packages):
        yield other_physics
    if result.order_dependence:
        yield result.order_dependence


def missing_scenes(protocol: Protocol, keys: Collection[Key]) -> str:
    """Returns how many scenes the incomplete tasks have, of those that are covered at all.

    Args:
        protocol: The protocol.
        keys: Episodes that are there, by task, split and index.

    Returns:
        Text such as "5 of 30 scenes of each split of hammer, knife"; empty if all tasks that are
        covered are complete.
    """
    missing = Counter((task, split) for task, split, _ in missing_keys(protocol, keys))
    tasks_by_gap: dict[str, list[str]] = {}
    for task in dict.fromkeys(task for task, _ in missing):
        gap = _gap(protocol, {split: missing[task, split] for split in protocol.splits})
        tasks_by_gap.setdefault(gap, []).append(task)
    return "; ".join(f"{gap} of {', '.join(tasks)}" for gap, tasks in tasks_by_gap.items())


def missing_keys(protocol: Protocol, keys: Collection[Key]) -> list[Key]:
    """Returns the episodes of the covered tasks that are missing, in the protocol's order.

    Args:
        protocol: The protocol.
        keys: Episodes that are there; a task that has one of them is covered.
    """
    present, covered = set(keys), {key[0] for key in keys}
    return [
        trial.key
        for trial in protocol.trials()
        if trial.task in covered and trial.key not in present
    ]


def _gap(protocol: Protocol, missing: Mapping[str, int]) -> str:
    """Returns text such as "5 of 30 scenes of each split", from numbers of missing scenes."""
    splits_by_count: dict[str, list[str]] = {}
    for split, scenes in protocol.splits.items():
        if missing[split]:
            count = f"{scenes.scenes - missing[split]} of {scenes.scenes} scenes"
            splits_by_count.setdefault(count, []).append(split)
    return ", ".join(
        f"{count} of {'each split' if len(splits) == len(protocol.splits) else _listed(splits)}"
        for count, splits in splits_by_count.items()
    )


def _listed(names: list[str]) -> str:
    """Returns text such as "train, unseen_pairs and unseen_tools"."""
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])
