"""Writes a data set so that what is finished stays, and what is not never counts.

Every file is written aside, flushed to the disk and moved into place; a line of the manifest comes
last. After a crash at any moment, the next writer finds whole episodes only, and goes on.
"""

from pathlib import Path

from fleet_tools.dataset.header import Header
from fleet_tools.dataset.reader import (
    EPISODES,
    HEADER,
    MANIFEST,
    Record,
    read_header,
    read_manifest,
)
from fleet_tools.errors import DatasetError
from fleet_tools.storage.append_log import Journal
from fleet_tools.storage.atomic_files import is_blank, leftovers, whole


class DatasetWriter:
    """Adds attempts to a new data set, or to one that was begun in the same way.

    Args:
        folder: Made if it does not exist; otherwise empty, or a data set.
        header: What is to be collected.

    Attributes:
        folder, header: As given.
        records: Of all attempts so far.

    Raises:
        DatasetError: The folder holds something else, or another writer is at work.
    """

    def __init__(self, folder: str | Path, header: Header) -> None:
        self.folder, self.header = Path(folder), header
        if (self.folder / HEADER).exists():
            self._require_same(read_header(self.folder))
        else:
            self._create()
        try:
            self._manifest = Journal(self.folder / MANIFEST)
        except BlockingIOError:
            raise DatasetError(f"Another process is writing to {self.folder}.") from None
        try:
            self.records = self._repair()
        except BaseException:
            self.close()
            raise

    def add(self, record: Record, content: bytes | None = None) -> None:
        """Stores an episode's file, if one is given, and then what came of the attempt.

        Args:
            record: What came of it; `file` is filled in here.
            content: See `episode_file.to_bytes`.

        Raises:
            OSError: The disk is full or gone; the data set is as it was.
        """
        if content is not None:
            file = f"{EPISODES}/episode_{record.attempt:06d}.hdf5"
            with whole(self.folder / file) as aside:
                aside.write_bytes(content)
            record = record.model_copy(update={"file": file})
        self._manifest.append(record.to_json())
        self.records.append(record)

    def close(self) -> None:
        """Lets others write."""
        self._manifest.close()

    def __enter__(self) -> "DatasetWriter":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _require_same(self, present: Header) -> None:
        differences = present.differences(self.header)
        if differences:
            raise DatasetError(
                f"{self.folder} already holds another data set: in it, {'; '.join(differences)}. "
                "Give another --output, or the same options to go on with it."
            )

    def _create(self) -> None:
        if self.folder.exists() and not is_blank(self.folder, (MANIFEST, EPISODES)):
            raise DatasetError(
                f"{self.folder} is neither empty nor a data set. Give another --output."
            )
        (self.folder / EPISODES).mkdir(parents=True, exist_ok=True)
        (self.folder / MANIFEST).touch()
        # Last, for it makes the folder a data set.
        with whole(self.folder / HEADER) as aside:
            aside.write_text(self.header.model_dump_json(indent=2) + "\n")

    def _repair(self) -> list[Record]:
        """Removes what a crash may have left."""
        for leftover in leftovers(self.folder):
            leftover.unlink()
        records, size = read_manifest(self.folder)
        self._manifest.cut(size)
        return records
