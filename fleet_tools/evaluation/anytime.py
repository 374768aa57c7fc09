"""Compares a running evaluation with a stored result, and stops it at a verdict.

Scenes are counted in blocks, one of each requested pair of task and split, whose order follows from
the hash of the protocol: nobody chooses it, and those scenes that someone looked at first while a
policy was made do not come first. Only blocks without gaps count, from the first one on. So neither
the times at which episodes end, which their outcomes change, nor a choice of scenes after seeing
outcomes can favour a policy, and an evaluation that is resumed gives the same verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from math import exp

from fleet_tools.errors import ResultError
from fleet_tools.evaluation.anytime_statistics import (
    anytime_interval,
    anytime_verdict,
    log_e_value,
    scenes_for_verdict,
)
from fleet_tools.evaluation.policy_provenance import PolicyProvenance
from fleet_tools.evaluation.protocol import Trial
from fleet_tools.evaluation.result import AnytimeVerdict, EpisodeResult, Evaluation, Result
from fleet_tools.evaluation.scores import paired, require_comparable
from fleet_tools.utils.statistics import NOT_TOLD_APART

_LARGEST_LOG = 700.0
"""Logarithm of the largest e-value that is told, near the largest float's."""


@dataclass(frozen=True)
class AnytimeComparison:
    """A comparison that may be looked at after each episode.

    Attributes:
        other: The result that the evaluation is compared with.
        blocks: Blocks of trials, each with one of every pair of task and split, in their order.
        rest: Requested trials that are in no block, since their pair has more scenes than others.
        margin: The least difference that matters, if there is such a thing.
    """

    other: Evaluation
    blocks: Sequence[Sequence[Trial]]
    rest: Sequence[Trial]
    margin: float | None

    @classmethod
    def of(
        cls, result: Result, other: Evaluation, trials: Sequence[Trial], margin: float | None
    ) -> "AnytimeComparison":
        """Returns the comparison of an evaluation with another one, before its trials begin.

        Args:
            result: Description of the evaluation.
            other: The other one, which has all its trials.
            trials: The requested trials.
            margin: See the class.

        Raises:
            ResultError: They cannot be compared, are of the same policy, or the other one has been
                stopped by its own outcomes or lacks some of the trials.
        """
        require_comparable(result, other.result)
        _require_other(result, other, trials)
        strata: dict[tuple[str, str], list[Trial]] = {}
        for trial in trials:
            strata.setdefault((trial.task, trial.split), []).append(trial)
        ordered = [
            sorted(stratum, key=lambda trial: _draw(result.protocol_digest, trial))
            for stratum in strata.values()
        ]
        count = min(map(len, ordered), default=0)
        return cls(
            other,
            blocks=[*zip(*(stratum[:count] for stratum in ordered), strict=True)],
            rest=[trial for stratum in ordered for trial in stratum[count:]],
            margin=margin,
        )

    @property
    def trials(self) -> list[Trial]:
        """All requested trials in their order; a block's trials of a task are together."""
        return [*chain.from_iterable(self.blocks), *self.rest]

    def look(self, episodes: Sequence[EpisodeResult]) -> AnytimeVerdict:
        """Returns what is known by the first complete blocks, or by those until the verdict.

        A block with an episode that is no trial (`is_trial`) counts for neither.

        Args:
            episodes: Present episodes, in any order.

        Raises:
            ResultError: An episode began in another scene than the other result's.
        """
        done = {episode.key for episode in episodes}
        pairs = {one.key: (one, two) for one, two in paired(episodes, self.other.episodes)[0]}
        first = second = scenes = 0
        verdict = NOT_TOLD_APART
        for block in self.blocks:
            keys = [trial.key for trial in block]
            if not done.issuperset(keys):
                break
            if not all(key in pairs for key in keys):
                continue
            outcomes = [(pairs[key][0].success, pairs[key][1].success) for key in keys]
            first += outcomes.count((True, False))
            second += outcomes.count((False, True))
            scenes += len(block)
            verdict = anytime_verdict((first, second, scenes), self.margin)
            if verdict != NOT_TOLD_APART:
                break
        counts = first, second, scenes
        low, high = anytime_interval(counts)
        block = len(self.blocks[0]) if self.blocks else 1
        enough = scenes_for_verdict(counts, self.margin, multiple=block)
        return AnytimeVerdict(
            against=self.other.result.policy.label,
            verdict=verdict,
            scenes=scenes,
            requested=sum(map(len, self.blocks)),
            block=block,
            e_value=float(f"{exp(min(log_e_value(counts), _LARGEST_LOG)):.4g}"),
            difference=(first - second) / scenes if scenes else None,
            low=low,
            high=high,
            margin=self.margin,
            needed=None if enough is None else enough - scenes,
        )


def _draw(protocol_digest: str, trial: Trial) -> bytes:
    """Returns by what the trials of a pair of task and split are sorted."""
    return sha256(f"{protocol_digest} {trial.task} {trial.split} {trial.index}".encode()).digest()


def _require_other(result: Result, other: Evaluation, trials: Sequence[Trial]) -> None:
    label = other.result.policy.label
    if _acts_alike(result.policy, other.result.policy):
        raise ResultError(
            f"{label!r} belongs to the same policy as this evaluation ({result.policy.source}), so "
            "every scene would end alike. Give the result of another policy."
        )
    if stopped := other.result.stopped:
        raise ResultError(
            f"{label!r} was stopped after {stopped.scenes} scenes, when its comparison with "
            f"{stopped.against!r} was decided, so its scenes depend on its outcomes. Complete it: "
            "run the command that made it, without --stop."
        )
    present = {episode.key for episode in other.episodes}
    missing = [trial for trial in trials if trial.key not in present]
    if missing:
        raise ResultError(
            f"{label!r} lacks {len(missing)} of the {len(trials)} requested scenes, such as "
            f"{missing[0].index} of {missing[0].task}, {missing[0].split}. Complete it, or request "
            "only scenes that it has (--tool or --task, --split, --scenes)."
        )


def _acts_alike(one: PolicyProvenance, other: PolicyProvenance) -> bool:
    """Returns whether two policies are known to be the same in all that acts."""
    names = ["kind", "content_digest", "env_kwargs", "track"]
    if one.kind != "checkpoint":  # whose file may have been copied; a factory may read others
        names += ["source", "training_seed"]
    known = one.kind == "built_in" or one.content_digest is not None
    return known and all(getattr(one, name) == getattr(other, name) for name in names)
