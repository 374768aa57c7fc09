"""Results of evaluations, as values.

Every number follows from the episodes, and every episode from its seed and its actions.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
import pydantic

from fleet_tools.config.tasks import GentleLimits
from fleet_tools.config.values import STORED_IF_SET, Count, NonNegative, Number, Value
from fleet_tools.dataset.carried_models import CarriesModels
from fleet_tools.envs.contact_metrics import ContactMetrics, is_gentle
from fleet_tools.envs.outcomes import SUCCESS, WORKER_ERROR
from fleet_tools.errors import ConfigError, ResultError, shown
from fleet_tools.evaluation.anytime_statistics import MOST_SCENES
from fleet_tools.evaluation.policy_provenance import PolicyProvenance
from fleet_tools.evaluation.protocol import Protocol, Trial, protocol_digest
from fleet_tools.storage.locked_folder import Document
from fleet_tools.storage.provenance import Machine
from fleet_tools.utils.statistics import NOT_TOLD_APART

SCHEMA_VERSION = 1


class EpisodeResult(Trial):
    """Result of one trial, a row of `episodes.parquet`.

    Attributes:
        outcome: One of `fleet_tools.envs.outcomes`.
        success: Whether the outcome is a success.
        success_once: Whether the success predicates held after any step.
        steps: Number of control steps, T.
        tool, object: Models of the scene; None if the process was lost.
        scene_digest: `Scene.digest` of the scene that the seed draws; None likewise.
        state_digest: Hash of the exact final state, hexadecimal; None if nothing could begin.
        actions: (T, 6), as executed; see `encode_actions`.
        seconds: Wall time of the episode, including the policy's creation if it was made for it.
        error: Error message, if there was an error.
        info: The policy's `info`, and "policy_seconds", the wall time that the policy took.
        final_points_m: Points of the last state by kind, see `fleet_tools.rollouts.agreement`; None
            where they are not known, or not finite.
        contact_metrics: How the task was handled; None where nobody measured it, as in older
            results.
        tries: Number of times that it was begun; more than once where its worker, or the program,
            ended before it did.
    """

    outcome: str
    success: bool
    success_once: bool
    steps: pydantic.NonNegativeInt
    tool: str | None = None
    object: str | None = None
    scene_digest: str | None = None
    state_digest: str | None = None
    actions: str = ""
    seconds: NonNegative
    error: str | None = None
    info: dict[str, pydantic.JsonValue] = {}
    final_points_m: dict[str, tuple[tuple[Number, Number, Number], ...]] | None = None
    contact_metrics: Annotated[ContactMetrics | None, STORED_IF_SET] = None
    tries: Count = 1

    def gentle(self, limits: GentleLimits | None) -> bool | None:
        """Returns whether it is a gentle success by its task's limits; None if unknown."""
        contact_metrics = self.contact_metrics
        return None if contact_metrics is None else is_gentle(limits, self.success, contact_metrics)

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.success != (self.outcome == SUCCESS) or self.success > self.success_once:
            raise ValueError(
                f"success is {self.success} and success_once is {self.success_once}, but the "
                f"outcome is {self.outcome!r}"
            )
        if len(decode_actions(self.actions)) != self.steps:
            raise ValueError(
                f"the number of actions differs from the number of steps, {self.steps}"
            )
        if self.state_digest is None and self.outcome != WORKER_ERROR and self.steps:
            raise ValueError("the hash of the final state is missing")
        return self


class Rate(Value):
    """A success rate with its 95% interval.

    Attributes:
        successes, trials: Counts.
        rate: Success rate; None without trials.
        low, high: Limits of the interval.
    """

    successes: pydantic.NonNegativeInt
    trials: pydantic.NonNegativeInt
    rate: Number | None
    low: Number
    high: Number


class Score(Value):
    """Success rates and errors in some episodes.

    Attributes:
        success: Rate of episodes whose outcome is a success, by which policies are ranked.
        success_once: Rate of episodes in which the success predicates held after any step.
        simulation_errors: Number of episodes in which the simulator failed; they are failed trials,
            unless it failed before the policy acted.
        policy_errors: Number of episodes in which the policy raised an error or returned an
            invalid action; they are failed trials.
        worker_errors: Number of episodes whose process died or hung; they are failed trials.
        gentle: Rate of gentle successes; None unless it is known of all trials.
        contact_metrics: Mean over all trials of `ContactMetrics.numbers`, with equal weights of all
            pairs of task and split; None likewise.
    """

    success: Rate
    success_once: Rate
    simulation_errors: pydantic.NonNegativeInt
    policy_errors: pydantic.NonNegativeInt
    worker_errors: pydantic.NonNegativeInt
    gentle: Annotated[Rate | None, STORED_IF_SET] = None
    contact_metrics: Annotated[dict[str, Number] | None, STORED_IF_SET] = None

    @property
    def errors(self) -> dict[str, int]:
        """Numbers of episodes that ended by an error, by its origin."""
        return {
            "policy": self.policy_errors,
            "worker": self.worker_errors,
            "simulator": self.simulation_errors,
        }


class Scores(Value):
    """All numbers of a result; see `fleet_tools.evaluation.scores.score`.

    Attributes:
        total: Mean over all pairs of task and split, with equal weights. All intervals are of score
            tests, see `fleet_tools.utils.statistics`.
        tasks: Score of each task.
        splits: Score of each split.
        strata: Score of each pair, by task, then by split.
    """

    total: Score
    tasks: dict[str, Score]
    splits: dict[str, Score]
    strata: dict[str, dict[str, Score]]


class AnytimeVerdict(Value):
    """State of a sequential comparison: its findings so far, and whether it has ended.

    All numbers are of the scenes until the verdict; later ones do not change it. They hold however
    often one looks, see `fleet_tools.evaluation.anytime_statistics`.

    Attributes:
        against: Name of the policy that the evaluated one is compared with.
        verdict: See `fleet_tools.utils.statistics.verdict_words`.
        scenes: Number of scenes that count: whole blocks, from the first one on.
        requested: Number of scenes of all blocks.
        block: Number of scenes of a block: one of each pair of task and split.
        e_value: Evidence against equal success rates; 20 is a verdict.
        difference: Difference of the success rates; None without scenes.
        low, high: Its 95% confidence sequence.
        margin: Margin of equivalence, if one was given.
        needed: Estimated number of scenes still needed for a verdict; None if it is not known, or
            above `MOST_SCENES` in all.
    """

    against: str
    verdict: str
    scenes: pydantic.NonNegativeInt
    requested: pydantic.NonNegativeInt
    block: pydantic.NonNegativeInt
    e_value: NonNegative
    difference: Number | None
    low: Number
    high: Number
    margin: Number | None
    needed: pydantic.NonNegativeInt | None

    @property
    def decided(self) -> bool:
        """Whether there is a verdict."""
        return self.verdict != NOT_TOLD_APART

    @property
    def progress(self) -> str:
        """E-value and scenes still needed, such as "e-value 3.1, about 48 more scenes needed"."""
        told = f"e-value {self.e_value:.3g}"
        if self.decided or not self.scenes:
            return told
        if self.needed is None:
            return f"{told}, more than {MOST_SCENES:,} scenes needed for a verdict"
        left = self.requested - self.scenes
        enough = "" if self.needed <= left else f" ({left} left)"
        return f"{told}, about {self.needed} more scenes needed for a verdict{enough}"

    def __str__(self) -> str:
        """Returns verdict, scenes, difference with its interval, and progress."""
        by = "" if self.difference is None else f", by {self.difference:+.1%}"
        return (
            f"{self.verdict} after {self.scenes} of {self.requested} scenes{by} ({self.low:+.1%} "
            f"to {self.high:+.1%}), {self.progress}"
        )


class Result(CarriesModels, Document):
    """The content of `result.json`; models of a user's own tasks lie beside it.

    Attributes:
        schema_version: Schema version of both files.
        protocol: The protocol, with the files of tasks that are not the package's.
        task_digests: Hashes of its task files, by task.
        protocol_digest: Hash of the protocol and its task files.
        policy: The evaluated policy.
        packages: Versions of the packages on which the bits of an episode depend.
        machine: Machine of the evaluation.
        command: Command that made or last resumed it.
        complete: Whether all episodes of the protocol are there.
        scores: Scores of the episodes that are there; None before the end, or after a kill.
        stopped: The verdict that stopped it before all requested scenes; its rates and their
            intervals are biased by that.
    """

    error = ResultError

    schema_version: Literal[1] = SCHEMA_VERSION
    protocol: Protocol
    task_digests: dict[str, str]
    protocol_digest: str
    policy: PolicyProvenance
    packages: dict[str, str]
    machine: Machine
    command: str
    complete: bool = False
    scores: Scores | None = None
    stopped: Annotated[AnytimeVerdict | None, STORED_IF_SET] = None

    @pydantic.model_validator(mode="after")
    def _right_digest(self) -> Self:
        if self.protocol_digest != protocol_digest(self.protocol, self.task_digests):
            raise ValueError("protocol_digest is not the hash of the protocol and its tasks")
        for name, file in self.protocol.task_files.items():
            if self.task_digests.get(name) != file.content_digest:
                raise ValueError(
                    f"task_digests has a hash of {shown(name)} that does not match its file"
                )
        return self

    def local_protocol(self) -> Protocol:
        """Returns the protocol with the models that the result carries, after checking them.

        Raises:
            ResultError: A model is missing or damaged.
        """
        files = self.protocol.task_files
        own = {name: self.with_models_of(file) for name, file in files.items()}
        return self.protocol.model_copy(update={"task_files": own})

    def essence(self) -> dict[str, object]:
        """Returns the properties that must be equal within one evaluation, by name."""
        return {
            "the protocol": f"{self.protocol.title} ({self.protocol_digest})",
            "the policy": self.policy.source,
            "the policy's hash": self.policy.content_digest,
            "the policy's environment": self.policy.env_kwargs,
            "the policy's training seed": self.policy.training_seed,
            "the policy's track": self.policy.track,
            **{str(model): model.content_digest for model in self.models},
            **{f"the version of {name}": number for name, number in self.packages.items()},
        }


@dataclass(frozen=True)
class Evaluation:
    """A result, and all its episodes in the protocol's order."""

    result: Result
    episodes: list[EpisodeResult]


def encode_actions(actions: np.ndarray) -> str:
    """Returns actions, (T, 6), as text: base64 of their float32, little-endian, row by row."""
    return base64.b64encode(np.asarray(actions, "<f4").tobytes()).decode()


def decode_actions(text: str) -> np.ndarray:
    """Returns the actions, (T, 6) float32, from the text of `encode_actions`.

    Raises:
        ConfigError: It is not such a text.
    """
    try:
        flat = np.frombuffer(base64.b64decode(text, validate=True), "<f4")
        return flat.reshape(-1, 6).astype(np.float32)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(
            f"Expected actions as base64 of rows of six float32 numbers: {error}."
        ) from None
