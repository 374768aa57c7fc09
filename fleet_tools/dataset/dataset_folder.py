"""Reads and writes a dataset: its header, its manifest of every attempt, and its episodes.

Every file is written atomically; a line of the manifest comes last. After a crash at any moment,
the next writer finds complete episodes only, and continues.
"""

from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from fleet_tools.dataset.header import HEADER, SCHEMA_VERSION, Header
from fleet_tools.dataset.stored_episode import (
    EPISODES,
    MANIFEST,
    AttemptRecord,
    StoredEpisode,
    begin_digest,
)
from fleet_tools.errors import DatasetError
from fleet_tools.rollouts.episode import Episode
from fleet_tools.storage.atomic_files import write_file
from fleet_tools.storage.record_folder import RecordKind, RecordWriter

DATASET = RecordKind(
    what="a dataset",
    maker="python -m fleet_tools.collect",
    error=DatasetError,
    document=Header,
    document_name=HEADER,
    version=SCHEMA_VERSION,
    record=AttemptRecord,
    log_name=MANIFEST,
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
        successes = accumulate(record.success for record in records)
        self._successes = dict(zip(self._records, successes, strict=True))

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
        successes = self._successes[record.attempt]
        return StoredEpisode(self.folder, self.header, record, successes, self._check)

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
        return self.stored_episode(record).read()


class DatasetWriter(RecordWriter[Header, AttemptRecord]):
    """Adds attempts to a new dataset, or to one that was begun in the same way.

    Args:
        folder: Created if it does not exist; otherwise empty, or a dataset.
        header: What is to be collected.

    Attributes:
        folder: As given.
        header: As given, with the models that the dataset carries.
        records: Records of all attempts so far.

    Raises:
        DatasetError: The folder holds something else, or another process is writing to it; or a
            model that the dataset is to carry has been edited since it was described.
        OSError: The disk is full or gone.
    """

    def __init__(self, folder: str | Path, header: Header) -> None:
        super().__init__(DATASET, Path(folder), header)
        try:
            self.document = self.document.carry(self.folder)
        except BaseException:
            self.close()
            raise

    @property
    def header(self) -> Header:
        """The document."""
        return self.document

    def add(self, record: AttemptRecord, content: bytes | None = None) -> None:
        """Stores an episode's file, if there is one, and then the record of the attempt.

        Args:
            record: Record of the attempt; `file` and `file_digest` are filled in here.
            content: See `episode_file.to_bytes`.

        Raises:
            OSError: The disk is full or gone; the dataset is unchanged.
        """
        if content is not None:
            file = f"{EPISODES}/episode_{record.attempt:06d}.hdf5"
            write_file(self.folder / file, content)
            digest = begin_digest(content).hexdigest()
            record = record.model_copy(update={"file": file, "file_digest": digest})
        self.append(record)
