"""Reads a dataset: its header, its manifest of every attempt, and its episodes."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np

from fleet_tools.dataset.header import (
    HEADER,
    SCHEMA_VERSION,
    Header,
    upgrade_from_1,
    upgrade_from_2,
)
from fleet_tools.dataset.manifest import EPISODES, MANIFEST, AttemptRecord
from fleet_tools.dataset.stored_episode import StoredEpisode
from fleet_tools.errors import DatasetError
from fleet_tools.rollouts.episode import Episode
from fleet_tools.storage.record_folder import FolderKind

DATASET = FolderKind(
    what="a dataset",
    maker="python -m fleet_tools.collect",
    error=DatasetError,
    document=Header,
    document_name=HEADER,
    version=SCHEMA_VERSION,
    record=AttemptRecord,
    log_name=MANIFEST,
    upgrades={1: upgrade_from_1, 2: upgrade_from_2},
    subfolders=(EPISODES,),
    without_log="; without it, the failed attempts are unknown",
)
"""Folders that hold datasets."""


class Dataset:
    """Reads a dataset.

    Args:
        folder: Folder of the dataset.
        check: Whether the digests and values of episodes are checked when they are read; what else
            is checked, takes no time.

    Attributes:
        folder: As given.
        header: Content of `dataset.json`.

    Raises:
        DatasetError: The dataset is missing, of an unknown version, or damaged.
    """

    def __init__(self, folder: str | Path, *, check: bool = True) -> None:
        self.folder, self._check = Path(folder), check
        self.header = DATASET.read_document(self.folder).lying_in(self.folder)
        records, _ = DATASET.read_records(self.folder)
        records.sort(key=lambda record: record.attempt)  # with several workers, they end unordered
        self._records = {record.attempt: record for record in records}
        if len(self._records) < len(records):
            twice = next(a.attempt for a, b in pairwise(records) if a.attempt == b.attempt)
            raise DatasetError(
                f"{self.folder / MANIFEST} lists attempt {twice} twice. Restore it from a copy."
            )

    def manifest(self) -> list[AttemptRecord]:
        """Returns the records of all attempts, in order."""
        return list(self._records.values())

    def stored(self) -> list[AttemptRecord]:
        """Returns the records of the attempts whose episodes are stored, in order."""
        return [record for record in self._records.values() if record.file is not None]

    def stored_episode(self, record: AttemptRecord) -> StoredEpisode:
        """Returns the stored episode of an attempt, whose file has not been opened.

        Raises:
            DatasetError: The episode was not stored.
        """
        if record.file is None:
            raise DatasetError(f"{self.folder} holds no episode of attempt {record.attempt}.")
        return StoredEpisode(self.folder, self.header, record, self._check)

    def path(self, record: AttemptRecord) -> Path:
        """Returns the file of a stored episode.

        Raises:
            DatasetError: The episode was not stored.
        """
        return self.stored_episode(record).path

    def draw(self, count: int | None, seed: int) -> list[AttemptRecord]:
        """Draws stored attempts, in order.

        Args:
            count: Number of attempts; None takes all, as does a number beyond theirs.
            seed: Seed of the draw.

        Raises:
            DatasetError: No episode is stored.
        """
        records = self.stored()
        if not records:
            raise DatasetError(
                f"{self.folder} holds no episodes yet. `python -m fleet_tools.collect` adds some; "
                "its --keep-failures stores failed ones, too."
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
        if record is None:
            raise DatasetError(f"{self.folder} holds no episode of attempt {attempt}.")
        episode = self.stored_episode(record)
        with remedied(episode):
            return episode.read()

    def remedy(self, record: AttemptRecord) -> str:
        """Returns how to recover an episode whose file is missing or damaged."""
        header = self.header
        option = "--tool" if header.task.folder is None else "--task"
        before = [r for r in self.manifest() if r.attempt <= record.attempt]
        episodes = sum(r.success for r in before) + (not record.success)
        keep = " --keep-failures" if header.keep_failures else ""
        return (
            f"Copy it here from `python -m fleet_tools.collect {option} "
            f"{shlex.quote(header.env_spec.task)} "
            f"--seed {header.seed} --episodes {episodes}{keep} --output ANOTHER`, which makes it "
            "again."
        )


@contextmanager
def remedied(episode: StoredEpisode) -> Iterator[None]:
    """Adds to errors about an episode's file how to recover it."""
    try:
        yield
    except DatasetError as error:
        remedy = Dataset(episode.folder).remedy(episode.record)
        raise DatasetError(f"{error} {remedy}") from error
