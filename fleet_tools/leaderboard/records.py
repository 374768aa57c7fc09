"""The host's records of results, beside their folders: `verified.jsonl` and `certified.jsonl`.

They are the host's alone: a submission that changes one is refused by whoever reads it.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, Self, TypeVar

import pydantic

from fleet_tools.config.values import Count, NonNegative, Positive, Seed, Value
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.result_folder import EPISODES, PACKED, RESULT
from fleet_tools.storage.atomic_files import write_file
from fleet_tools.storage.provenance import Machine
from fleet_tools.storage.record_folder import read_records

VERIFIED = "verified.jsonl"
"""File of verifications, in the folder of all results."""

CERTIFIED = "certified.jsonl"
"""File of certificates, likewise."""

_DIFFERENCES_KEPT = 20

EXCUSED_SHARE = 0.1
"""Share of episodes that may end otherwise on another machine before they refute a result; it is
unverified then, and never verified."""

Status = Literal["verified", "unverified", "refuted"]


class Verification(Value):
    """Verification of a result: what came of some of its episodes when the host ran them again.

    Attributes:
        folder: Folder of the result, see `Submission`.
        content_digest: Hash of its files, so that a changed result is not verified.
        by: What they ran from: their actions, or their policy, a checkpoint that the host has.
        seed: Seed of the draw of the episodes, which the host drew after the submission.
        requested: Number of episodes that the host asked for.
        episodes: Number of episodes that ran again.
        same: Number of those that agree with the result bit for bit.
        same_outcome: Number of those that end alike: in the same scene, with the same outcome,
            after as many steps. On another processor, this may be so although bits differ.
        within: Number of episodes of which the last states, too, are at most within_m apart.
        within_m: This distance, m.
        measured: Number of episodes of which the last states were compared.
        largest_distance_m: The largest distance of the last states, m; None without any.
        differences: A sentence for each episode that differs; other outcomes come first.
        other_versions: By package, the version of the result and the one here, if they differ;
            then genuine episodes may differ, too.
        other_machine: By property, such as "processor", the result's machine and this one, if they
            are known to differ, see `Machine.differences`; then bits may differ, and seldom ends.
        packages: Versions of the packages here on which bits depend.
        machine: Machine of the verification.
    """

    folder: str
    content_digest: str
    by: Literal["actions", "policy"]
    seed: Seed
    requested: Count
    episodes: pydantic.NonNegativeInt
    same: pydantic.NonNegativeInt
    same_outcome: pydantic.NonNegativeInt
    within: pydantic.NonNegativeInt
    within_m: NonNegative
    measured: pydantic.NonNegativeInt
    largest_distance_m: NonNegative | None = None
    differences: tuple[str, ...] = ()
    other_versions: dict[str, tuple[str, str | None]] = {}
    other_machine: dict[str, tuple[str, str]] = {}
    packages: dict[str, str] = {}
    machine: Machine

    @property
    def status(self) -> Status:
        """What it shows.

        Only a result of which every episode ended alike is verified, on whatever machine. One that
        ends otherwise refutes the result, unless this can have another cause: other versions,
        whatever their number. Another machine is one, too, which changes the actions that a policy
        computes, but the ends of given actions in few episodes only.
        """
        others = self.episodes - self.same_outcome
        if self.episodes and not others:
            return "verified"
        if not self.episodes or self.other_versions:
            return "unverified"
        few = others <= max(1, EXCUSED_SHARE * self.episodes)
        excused = self.other_machine and (few or self.by == "policy")
        return "unverified" if excused else "refuted"

    @property
    def reason(self) -> str:
        """Why a result is refuted, in words."""
        first = f": {self.differences[0]}" if self.differences else ""
        return (
            f"{self.episodes - self.same_outcome} of {self.episodes} episodes end otherwise when "
            f"they run again{first}"
        )


class StepVerdicts(Value):
    """Verdicts of an episode at several time steps of the dynamics.

    Attributes:
        task, split, index: The episode.
        successes: Whether it is a success, at each time step of its certificate.
    """

    task: str
    split: str
    index: pydantic.NonNegativeInt
    successes: tuple[bool, ...]

    @property
    def near_the_edge(self) -> bool:
        """Whether the time step decides the verdict."""
        return len({*self.successes}) > 1


class Certificate(Value):
    """What smaller time steps make of a result: some of its episodes again, from their actions.

    Attributes:
        folder: Folder of the result, see `Submission`.
        content_digest: Hash of its files, so that a changed result has no certificate.
        steps_ms: Time steps of the dynamics, ms; the protocol's own first, then smaller ones.
        episodes: The verdicts of each episode.
        packages: Versions of the packages on which bits depend.
        machine: Machine of these runs.
    """

    folder: str
    content_digest: str
    steps_ms: tuple[Positive, ...]
    episodes: tuple[StepVerdicts, ...]
    packages: dict[str, str] = {}
    machine: Machine

    @property
    def near_the_edge(self) -> list[StepVerdicts]:
        """The episodes of which the time step decides the verdict."""
        return [each for each in self.episodes if each.near_the_edge]

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> Self:
        falling = sorted({*self.steps_ms}, reverse=True)
        if len(falling) < 2 or list(self.steps_ms) != falling:
            raise ValueError(f"the time steps {self.steps_ms} are not two or more that get smaller")
        if any(len(each.successes) != len(falling) for each in self.episodes):
            raise ValueError(f"an episode has not {len(falling)} verdicts, one for each time step")
        if len({(e.task, e.split, e.index) for e in self.episodes}) < len(self.episodes):
            raise ValueError("an episode occurs twice")
        return self


_Kept = TypeVar("_Kept", Verification, Certificate)


def content_digest(folder: Path) -> str:
    """Returns a hash of the files of a result."""
    digest = hashlib.blake2b(digest_size=16)
    for path in (folder / name for name in (RESULT, PACKED, EPISODES)):
        if path.exists():
            digest.update(hashlib.blake2b(path.read_bytes()).digest())
    return digest.hexdigest()


def read_verifications(root: Path) -> dict[str, Verification]:
    """Returns the verifications of results below a folder, by the folder of the result.

    Raises:
        ResultError: The file is damaged.
    """
    return _read(root / VERIFIED, Verification)


def write_verifications(root: Path, verifications: Mapping[str, Verification]) -> None:
    """Replaces the verifications of results below a folder."""
    _write(root / VERIFIED, verifications)


def read_certificates(root: Path) -> dict[str, Certificate]:
    """Returns the certificates of results below a folder, by the folder of the result.

    Raises:
        ResultError: The file is damaged.
    """
    return _read(root / CERTIFIED, Certificate)


def write_certificates(root: Path, certificates: Mapping[str, Certificate]) -> None:
    """Replaces the certificates of results below a folder."""
    _write(root / CERTIFIED, certificates)


def still_valid(record: _Kept | None, digest: str) -> _Kept | None:
    """Returns a record if it is of a result whose files have this hash, else None."""
    return record if record is not None and record.content_digest == digest else None


def _read(path: Path, kind: type[_Kept]) -> dict[str, _Kept]:
    if not path.exists():
        return {}
    records, _ = read_records(path, kind, ResultError)
    return {record.folder: record for record in records}


def _write(path: Path, records: Mapping[str, Verification] | Mapping[str, Certificate]) -> None:
    write_file(path, "".join(f"{records[folder].to_json()}\n" for folder in sorted(records)))


def kept_differences(differences: Iterable[tuple[bool, str]]) -> tuple[str, ...]:
    """Returns the sentences that a record keeps.

    Args:
        differences: Whether the outcome is the same, and the sentence, of each episode.
    """
    ordered = [text for _, text in sorted(differences, key=lambda each: each[0])]
    more = len(ordered) - _DIFFERENCES_KEPT
    return tuple([*ordered[:_DIFFERENCES_KEPT], *([f"{more} more differ"] if more > 0 else [])])
