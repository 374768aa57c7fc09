"""The cost of a level for a policy, from matched episodes that differ only by the level."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fleet_tools.errors import ResultError
from fleet_tools.evaluation.policy_provenance import PolicyProvenance
from fleet_tools.evaluation.result import Evaluation, Result
from fleet_tools.evaluation.scores import Pair, is_trial, require_same_physics, success_difference


@dataclass(frozen=True)
class PairedDifference:
    """Difference of success rates between matched episodes.

    Attributes:
        difference: Success rate at the nominal level minus that at the other one, the mean over all
            pairs of task and split.
        low, high: Its 95% interval, by a score test, see `fleet_tools.utils.statistics`.
        pairs: Number of pairs of episodes.
    """

    difference: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        """Returns text such as "14 points (9 to 19)"."""
        points, low, high = (round(100 * x) for x in (self.difference, self.low, self.high))
        return f"{points} points ({low} to {high})"


@dataclass(frozen=True)
class LevelCost:
    """The cost of a level: success rate in the nominal scenes minus success rate at the level.

    Attributes:
        policy, level: Their names.
        total: Over all pairs of episodes.
        tasks, splits: By task, and by split.
    """

    policy: str
    level: str
    total: PairedDifference
    tasks: dict[str, PairedDifference]
    splits: dict[str, PairedDifference]

    def __str__(self) -> str:
        """Returns a sentence, with the cost in each task."""
        tasks = "; ".join(f"{task} {cost}" for task, cost in self.tasks.items())
        return f"The level {self.level} costs {self.policy} {self.total}: {tasks}."


def level_cost(nominal: Evaluation, level: Evaluation) -> LevelCost:
    """Compares a policy's results at the nominal level and at another one, scene by scene.

    Args:
        nominal: The result at the nominal level.
        level: The other one; only scenes of which both have an episode count.

    Raises:
        ResultError: They are of different policies, not of two levels that are matched, or have no
            scene in common.
    """
    require_matched(nominal.result, level.result)
    plain = {episode.key: episode for episode in nominal.episodes}
    pairs = [
        (plain[episode.key], episode)
        for episode in level.episodes
        if episode.key in plain and is_trial(episode) and is_trial(plain[episode.key])
    ]

    if not pairs:
        raise ResultError(
            "The two results have no finished scene in common. Evaluate the same tasks and splits "
            "at both levels."
        )

    def grouped(
        names: Iterable[str], name_of: Callable[[Pair], str]
    ) -> dict[str, PairedDifference]:
        groups = {name: [pair for pair in pairs if name_of(pair) == name] for name in names}
        return {name: _paired(group) for name, group in groups.items() if group}

    protocol = level.result.protocol
    return LevelCost(
        policy=level.result.policy.label,
        level=protocol.level_name,
        total=_paired(pairs),
        tasks=grouped(protocol.tasks, lambda pair: pair[0].task),
        splits=grouped(protocol.splits, lambda pair: pair[0].split),
    )


def require_matched(nominal: Result, level: Result) -> None:
    """Checks that two results are of one policy, at the nominal level and at another one of it.

    Raises:
        ResultError: They are not.
    """
    plain, harder = nominal.protocol, level.protocol
    if not harder.level:
        raise ResultError(
            f"{harder.title!r} is the nominal level, which has no cost. Give a result at another "
            "level (--level)."
        )
    matched = (plain.name, plain.version, plain.level) == (harder.name, harder.version, "")
    seeds = {name: scenes.first_seed for name, scenes in plain.splits.items()}
    same_seeds = all(seeds.get(name) == each.first_seed for name, each in harder.splits.items())
    if not (matched and same_seeds and nominal.task_digests == level.task_digests):
        raise ResultError(
            f"{plain.title!r} ({nominal.protocol_digest}) is not the nominal level of "
            f"{harder.title!r} ({level.protocol_digest}) with the same scenes and task files. "
            "Evaluate the policy at the level `nominal` of the same protocol, and give that result."
        )
    if _identity(nominal.policy) != _identity(level.policy):
        raise ResultError(
            f"{nominal.policy.label!r} ({nominal.policy.source}) and {level.policy.label!r} "
            f"({level.policy.source}) are different policies, or have different observations. Give "
            "two results of one policy."
        )
    require_same_physics(nominal, level)


def _identity(policy: PolicyProvenance) -> tuple[object, ...]:
    """Returns all by which a policy acts, whatever cameras it is shown."""
    observed = {name: value for name, value in policy.env_kwargs.items() if name != "sensors"}
    source = None if policy.kind == "checkpoint" else policy.source  # its file may be a copy
    digest, track, seed = policy.content_digest, policy.track, policy.training_seed
    return policy.kind, source, digest, observed, track, seed


def _paired(pairs: list[Pair]) -> PairedDifference:
    found = success_difference(pairs)
    assert found.difference is not None  # there are pairs
    return PairedDifference(found.difference, found.low, found.high, len(pairs))
