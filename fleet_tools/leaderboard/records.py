"""The host's record of verified results: `verified.jsonl`, beside the folders of results.

It is the host's alone: a submission that changes it is refused by whoever reads the submission.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import pydantic

from fleet_tools.config.values import Count, Seed, Value
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.result_file import EPISODES, RESULT
from fleet_tools.storage.atomic_files import atomic_write
from fleet_tools.storage.json_documents import read_records
from fleet_tools.storage.provenance import Machine

VERIFIED = "verified.jsonl"
"""The file, in the folder of all results."""

_DIFFERENCES_KEPT = 20

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
        same_outcome: Number of those whose outcome, too, is the stored one; on another processor,
            this may be so although bits differ.
        differences: A sentence for each episode that differs, those of another outcome first.
        other_versions: By package, the version of the result and the one here, if they differ;
            then genuine episodes may differ, too. For policies, which compute by the kernels of
            libraries, the processor likewise.
        machine: Machine of the verification.
    """

    folder: str
    content_digest: str
    by: Literal["actions", "policy"] = "actions"
    seed: Seed
    requested: Count
    episodes: pydantic.NonNegativeInt
    same: pydantic.NonNegativeInt
    same_outcome: pydantic.NonNegativeInt
    differences: tuple[str, ...] = ()
    other_versions: dict[str, tuple[str, str | None]] = {}
    machine: Machine

    @property
    def status(self) -> Status:
        """What it shows: an outcome that differs refutes a result, unless versions differ."""
        if self.episodes and self.same_outcome == self.episodes:
            return "verified"
        return "unverified" if self.other_versions or not self.episodes else "refuted"

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
    with atomic_write(root / VERIFIED) as aside:
        lines = (f"{verifications[folder].to_json()}\n" for folder in sorted(verifications))
        aside.write_text("".join(lines), encoding="utf-8")


def kept_differences(differences: Iterable[tuple[bool, str]]) -> tuple[str, ...]:
    """Returns the sentences that a record keeps.

    Args:
        differences: Whether the outcome is the same, and the sentence, of each episode.
    """
    ordered = [text for _, text in sorted(differences, key=lambda each: each[0])]
    more = len(ordered) - _DIFFERENCES_KEPT
    return tuple([*ordered[:_DIFFERENCES_KEPT], *([f"{more} more differ"] if more > 0 else [])])
