"""Reads a data set: its header, its manifest of every attempt, and its episodes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pydantic

from fleet_tools.config.values import Value
from fleet_tools.dataset import episode_file
from fleet_tools.dataset.header import SCHEMA_VERSION, Header
from fleet_tools.errors import DatasetError
from fleet_tools.rollouts.episode import Episode
from fleet_tools.storage.documents import read_document, read_lines

HEADER = "dataset.json"
MANIFEST = "manifest.jsonl"
EPISODES = "episodes"


class Record(Value):
    """A line of the manifest: what came of one attempt.

    Attributes:
        attempt: Counts from 0.
        seed: `env.reset(seed=seed)` draws the attempt's scene.
        outcome: See `fleet_tools.rollouts.episode.Episode`.
        success: Whether the outcome is a success.
        steps: Control steps.
        file: Where the episode is, relative to the data set; None if it was not stored.
        tool, object: Of the scene; None if it could not even begin.
        state_digest: Of the last state, hexadecimal.
        seconds: Wall time.
        error: What went wrong, where something did.
        verified: Whether it was run again before it counted, and came out bit for bit.
        info: See `fleet_tools.rollouts.episode.Episode`.
    """

    attempt: int
    seed: int
    outcome: str
    success: bool
    steps: int
    file: str | None = None
    tool: str | None = None
    object: str | None = None
    state_digest: str | None = None
    seconds: float
    error: str | None = None
    verified: bool = False
    info: dict[str, pydantic.JsonValue] = {}


class Dataset:
    """Reads a data set.

    Args:
        folder: Of the data set.

    Attributes:
        folder, header: Where and what it is.

    Raises:
        DatasetError: It is not there, of another version, or damaged.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.header = read_header(self.folder)
        records, _ = read_manifest(self.folder)
        records.sort(key=lambda record: record.attempt)  # with many workers, they end in any order
        self._records = {record.attempt: record for record in records}

    def manifest(self) -> list[Record]:
        """Returns what came of every attempt, in their order."""
        return list(self._records.values())

    def stored(self) -> list[Record]:
        """Returns the attempts whose episodes are stored."""
        return [record for record in self._records.values() if record.file is not None]

    def draw(self, count: int | None, seed: int) -> list[Record]:
        """Returns so many of the stored attempts, drawn by a seed, in their order.

        Args:
            count: All of them if None, or if there are no more.
            seed: Of the generator.

        Raises:
            DatasetError: No episode is stored.
        """
        records = self.stored()
        if not records:
            raise DatasetError(
                f"{self.folder} holds no episodes yet. `python -m fleet_tools.collect` adds some; "
                "its --keep-failures stores those that fail, too."
            )
        if count is None or count >= len(records):
            return records
        chosen = np.random.default_rng(seed).choice(len(records), count, replace=False)
        return [records[k] for k in sorted(chosen)]

    def __len__(self) -> int:
        """Returns the number of stored episodes."""
        return len(self.stored())

    def __iter__(self) -> Iterator[Episode]:
        """Yields the stored episodes."""
        return (self.episode(record.attempt) for record in self.stored())

    def episode(self, attempt: int) -> Episode:
        """Reads the episode of an attempt.

        Raises:
            DatasetError: It was not stored, or its file is missing or damaged.
        """
        record = self._records.get(attempt)
        if record is None or record.file is None:
            raise DatasetError(f"{self.folder} holds no episode of attempt {attempt}.")
        try:
            episode = episode_file.read(self.folder / record.file)
        except DatasetError as error:
            raise DatasetError(f"{error} {self.remedy(record)}") from error
        if last_digest(episode) != record.state_digest:
            raise DatasetError(
                f"{self.folder / record.file} is not the episode that {MANIFEST} lists. "
                f"{self.remedy(record)}"
            )
        return replace(episode, info=record.info)

    def remedy(self, record: Record) -> str:
        """Returns how to get an episode again whose file is missing or damaged."""
        header = self.header
        task = header.environment.kwargs["task"]
        option = "--tool" if header.task.folder is None else "--task"
        before = [r for r in self.manifest() if r.attempt <= record.attempt]
        episodes = sum(r.success for r in before) + (not record.success)
        keep = " --keep-failures" if header.keep_failures else ""
        return (
            f"Copy it here from `python -m fleet_tools.collect {option} {task} "
            f"--seed {header.seed} --episodes {episodes}{keep} --output ANOTHER`, which makes it "
            "again."
        )


def last_digest(episode: Episode) -> str:
    """Returns the hash of the last state, as the manifest has it."""
    return hexadecimal(episode.digests[-1])


def hexadecimal(digest: np.uint64) -> str:
    """Returns a hash as the manifest has it."""
    return f"{int(digest):016x}"


def read_header(folder: Path) -> Header:
    """Reads `dataset.json`.

    Raises:
        DatasetError: It is missing, damaged or of another version.
    """
    missing = (
        f"{folder} is not a data set: it has no {HEADER}. `python -m fleet_tools.collect` makes "
        "one."
    )
    return read_document(folder / HEADER, Header, SCHEMA_VERSION, DatasetError, missing)


def read_manifest(folder: Path) -> tuple[list[Record], int]:
    """Reads the whole lines of `manifest.jsonl`; a torn last line never counted.

    Returns:
        The records, and how many bytes they take.

    Raises:
        DatasetError: It is missing or damaged.
    """
    without = "; without it nobody knows which attempts failed"
    return read_lines(folder / MANIFEST, Record, DatasetError, without)
