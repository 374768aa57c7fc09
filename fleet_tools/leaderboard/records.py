"""The host's record of verified results: `verified.jsonl`, beside the folders of results.

It is the host's alone: a submission that changes it is refused by whoever reads the submission.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import pydantic

from fleet_tools.config.values import Count, NonNegative, Seed, Value
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.result_folder import EPISODES, RESULT
from fleet_tools.storage.atomic_files import write_file
from fleet_tools.storage.provenance import Machine
from fleet_tools.storage.record_folder import read_records

VERIFIED = "verified.jsonl"
"""The file, in the folder of all results."""

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


def content_digest(folder: Path) -> str:
    """Returns a hash of the files of a result."""
    digest = hashlib.blake2b(digest_size=16)
    for name in (RESULT, EPISODES):
        digest.update(hashlib.blake2b((folder / name).read_bytes()).digest())
    return digest.hexdigest()


def read_verifications(root: Path) -> dict[str, Verification]:
    """Returns the verifications of results below a folder, by the folder of the result.

    Raises:
        ResultError: The file is damaged.
    """
    path = root / VERIFIED
    if not path.exists():
        return {}
    records, _ = read_records(path, Verification, ResultError)
    return {record.folder: record for record in records}


def write_verifications(root: Path, verifications: Mapping[str, Verification]) -> None:
    """Replaces the verifications of results below a folder."""
    lines = (f"{verifications[folder].to_json()}\n" for folder in sorted(verifications))
    write_file(root / VERIFIED, "".join(lines))


def kept_differences(differences: Iterable[tuple[bool, str]]) -> tuple[str, ...]:
    """Returns the sentences that a record keeps.

    Args:
        differences: Whether the outcome is the same, and the sentence, of each episode.
    """
    ordered = [text for _, text in sorted(differences, key=lambda each: each[0])]
    more = len(ordered) - _DIFFERENCES_KEPT
    return tuple([*ordered[:_DIFFERENCES_KEPT], *([f"{more} more differ"] if more > 0 else [])])
