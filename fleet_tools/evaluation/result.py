"""What came of an evaluation: `result.json` says who, by what and how well; `episodes.jsonl`, all.

Every number follows from the episodes, and every episode from its seed and its actions.
"""

import base64
import binascii
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pydantic

from fleet_tools.config.values import NonNegative, Number, Value, differences
from fleet_tools.envs.outcomes import SUCCESS, WORKER_ERROR
from fleet_tools.errors import ConfigError, ResultError
from fleet_tools.evaluation.protocol import Protocol, Trial, protocol_digest
from fleet_tools.storage.documents import read_document, read_lines
from fleet_tools.utils import machine

RESULT = "result.json"
EPISODES = "episodes.jsonl"
SCHEMA_VERSION = 1


class EpisodeResult(Trial):
    """A line of `episodes.jsonl`: what came of one trial.

    Attributes:
        outcome: One of `fleet_tools.envs.outcomes`.
        success: Whether it ended as a success.
        success_once: Whether the success predicates held after any step.
        steps: Control steps, T.
        tool, object: Of the scene; None if nothing could begin.
        scene_digest: `Scene.digest` of the scene that the seed draws; None likewise.
        state_digest: Of the exact state at the end, hexadecimal; None likewise.
        actions: (T, 6) as executed; see `encode_actions`.
        seconds: Wall time of the episode, making the policy included where it was made for it.
        error: What went wrong, where something did.
        info: What the policy remembers (`fleet_tools.rollouts.episode.Policy`), and "policy_seconds", the
            wall time that it took for itself.
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

    @pydantic.model_validator(mode="after")
    def _parts_fit(self):
        if self.success != (self.outcome == SUCCESS) or self.success > self.success_once:
            raise ValueError(
                f"success is {self.success} and success_once is {self.success_once}, where the "
                f"outcome is {self.outcome!r}"
            )
        if len(decode_actions(self.actions)) != self.steps:
            raise ValueError(f"there are not {self.steps} actions, as there are steps")
        if self.state_digest is None and self.outcome != WORKER_ERROR and self.steps:
            raise ValueError("the hash of the last state is missing")
        return self


class Rate(Value):
    """A success rate with its 95% interval.

    Attributes:
        successes, trials: Counts.
        rate: None without trials.
        low, high: The interval.
    """

    successes: pydantic.NonNegativeInt
    trials: pydantic.NonNegativeInt
    rate: Number | None
    low: Number
    high: Number


class Score(Value):
    """How well a policy did in some episodes.

    Attributes:
        end: Success at the end, which is what policies are ranked by.
        any_time: Success after any step.
        simulation_errors: Episodes in which the simulator failed; they are no trials.
        policy_errors: Those in which the policy raised an error, or its action was none. They and
            the next are trials, and failures.
        worker_errors: Those whose process died or hung.
    """

    end: Rate
    any_time: Rate
    simulation_errors: pydantic.NonNegativeInt
    policy_errors: pydantic.NonNegativeInt
    worker_errors: pydantic.NonNegativeInt

    @property
    def errors(self) -> dict[str, int]:
        """How many episodes ended by an error, by whose it was."""
        return {
            "policy": self.policy_errors,
            "worker": self.worker_errors,
            "simulator": self.simulation_errors,
        }


class Scores(Value):
    """All numbers of a result; see `fleet_tools.evaluation.scores.score`.

    Attributes:
        total: The mean over all pairs of task and split, each of which counts the same; its
            intervals are a stratified bootstrap's, the others are Wilson's.
        tasks, splits: By name.
        strata: By task, then by split.
    """

    total: Score
    tasks: dict[str, Score]
    splits: dict[str, Score]
    strata: dict[str, dict[str, Score]]


class PolicyIdentity(Value):
    """Who was evaluated.

    Attributes:
        name: What tables call it.
        kind: "built_in", "factory" or "checkpoint".
        source: The name, module:factory, or the checkpoint file's name.
        content_digest: Hash of the checkpoint, or of the module's file; None for the package's own.
        environment: Keywords of its environment, such as {"obs_mode": "point_cloud"}.
        training_seed: Of its training, where it is one of several of the same name; else None.
    """

    name: str
    kind: Literal["built_in", "factory", "checkpoint"]
    source: str
    content_digest: str | None
    environment: dict[str, pydantic.JsonValue]
    training_seed: pydantic.NonNegativeInt | None = None


class Machine(Value):
    """Where it ran; seconds depend on it, and nothing else should."""

    system: str
    processor: str
    cores: Number
    memory_gib: Number

    @classmethod
    def here(cls) -> "Machine":
        """Returns this one."""
        return cls(
            system=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
            processor=machine.processor(),
            cores=machine.available_cores(),
            memory_gib=round(machine.total_memory() / machine.GIB, 1),
        )


class Result(Value):
    """The content of `result.json`.

    Attributes:
        schema_version: Of both files.
        protocol, task_digests, protocol_digest: By what; see `fleet_tools.evaluation.protocol`.
        policy: Who.
        packages: The versions on which the bits of an episode depend.
        machine: Where.
        command: That made it, the last time that it went on.
        complete: Whether there is every episode of the protocol.
        scores: Of the episodes that there are; None while it runs, or after a kill.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    protocol: Protocol
    task_digests: dict[str, str]
    protocol_digest: str
    policy: PolicyIdentity
    packages: dict[str, str]
    machine: Machine
    command: str
    complete: bool = False
    scores: Scores | None = None

    @pydantic.model_validator(mode="after")
    def _digest_is_right(self):
        if self.protocol_digest != protocol_digest(self.protocol, self.task_digests):
            raise ValueError("protocol_digest is not the hash of the protocol and its tasks")
        return self

    def differences(self, other: "Result") -> list[str]:
        """Says in what two results differ that may not differ within one."""
        return differences(self._essence(), other._essence())

    def _essence(self) -> dict[str, object]:
        return {
            "the protocol": f"{self.protocol.title} ({self.protocol_digest})",
            "the policy": self.policy.source,
            "the policy's hash": self.policy.content_digest,
            "the policy's environment": self.policy.environment,
            "the policy's training seed": self.policy.training_seed,
            **{f"the version of {name}": number for name, number in self.packages.items()},
        }


@dataclass(frozen=True)
class Evaluation:
    """A result and the episodes that it stands on, in the protocol's order."""

    result: Result
    episodes: list[EpisodeResult]


def encode_actions(actions: np.ndarray) -> str:
    """Returns actions, (T, 6), as text: base64 of their float32, little-endian, row by row."""
    return base64.b64encode(np.asarray(actions, "<f4").tobytes()).decode()


def decode_actions(text: str) -> np.ndarray:
    """Returns the actions, (T, 6) float32, of which `encode_actions` made the text.

    Raises:
        ConfigError: It made no such text.
    """
    try:
        flat = np.frombuffer(base64.b64decode(text, validate=True), "<f4")
        return flat.reshape(-1, 6).astype(np.float32)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"Actions are base64 of rows of six float32; {error}.") from None


def load_evaluation(folder: str | Path) -> Evaluation:
    """Reads an evaluation and sees whether its parts belong together.

    Raises:
        ResultError: It is missing, damaged, of another version, or its episodes are not those of
            its protocol.
    """
    folder = Path(folder)
    result = read_result(folder)
    episodes, _ = read_episodes(folder)
    return Evaluation(result, in_order(result.protocol, episodes, folder / EPISODES))


def read_result(folder: Path) -> Result:
    """Reads `result.json`.

    Raises:
        ResultError: It is missing, damaged or of another version.
    """
    missing = (
        f"{folder} is no evaluation: it has no {RESULT}. `python -m fleet_tools.evaluate` makes "
        "one."
    )
    return read_document(folder / RESULT, Result, SCHEMA_VERSION, ResultError, missing)


def read_episodes(folder: Path) -> tuple[list[EpisodeResult], int]:
    """Reads the whole lines of `episodes.jsonl`; a torn last line never counted.

    Returns:
        The episodes in the order in which they ended, and how many bytes they take.

    Raises:
        ResultError: It is missing or damaged.
    """
    return read_lines(folder / EPISODES, EpisodeResult, ResultError)


def in_order(protocol: Protocol, episodes: list[EpisodeResult], where: Path) -> list[EpisodeResult]:
    """Returns episodes in their protocol's order.

    Args:
        protocol: The protocol.
        episodes: All or some of its trials.
        where: They come from, for the message.

    Raises:
        ResultError: One is not the protocol's, has another seed than there, or is given twice.
    """
    seeds = {trial.key: trial.seed for trial in protocol.trials()}
    by_key: dict[tuple, EpisodeResult] = {}
    for episode in episodes:
        place = f"{where}: the episode {episode.index} of {episode.task}, {episode.split}"
        if episode.key not in seeds:
            raise ResultError(f"{place}, is none of the protocol {protocol.title!r}.")
        if episode.seed != seeds[episode.key]:
            raise ResultError(
                f"{place}, has the seed {episode.seed}; the protocol says {seeds[episode.key]}."
            )
        if episode.key in by_key:
            raise ResultError(f"{place}, is there twice.")
        by_key[episode.key] = episode
    return [by_key[key] for key in seeds if key in by_key]
