"""Folders with an append-only log of records, such as datasets and evaluations.

The log of a finished folder may give way to a file of compressed records. Whoever resumes it begins
a new log beside that file, so that a kill at any moment loses no record.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from fleet_tools.config.values import Value, parse
from fleet_tools.errors import FleetToolsError, OrderDependenceError
from fleet_tools.storage.locked_folder import RESTORE, Document, FolderKind, LockedFolder
from fleet_tools.storage.strict_json import loads

D = TypeVar("D", bound=Document)
R = TypeVar("R", bound=Value)


def read_records(
    path: Path, kind: type[R], error: type[FleetToolsError], without: str = ""
) -> tuple[list[R], int]:
    """Reads the complete lines of a log; a last line without its newline never counts.

    Args:
        path: Path of the log, as `fleet_tools.storage.locked_folder.AppendLog` writes it.
        kind: Class of a record.
        error: Class of the errors raised.
        without: What is unknown without the log, for the error message.

    Returns:
        The records, and the number of bytes that they take.

    Raises:
        FleetToolsError: The log is missing or damaged.
    """
    try:
        content = path.read_bytes()
    except OSError as raised:
        raise error(
            f"{path} cannot be read: {raised.strerror}. {RESTORE[:-1]}{without}."
        ) from raised
    complete = content[: content.rfind(b"\n") + 1]
    records = []
    for number, line in enumerate(complete.splitlines(), 1):
        location = f"{path}:{number}"
        try:
            records.append(parse(kind, loads(line.decode()), location))
        except ValueError as raised:  # ConfigError is one, too
            raise error(f"{location} is damaged: {raised} {RESTORE}") from raised
    return records, len(complete)


@dataclass(frozen=True, kw_only=True)
class RecordKind(FolderKind[D], Generic[D, R]):
    """A kind of folder of records.

    Attributes:
        record: Class of a record.
        without_log: What is unknown without the log, for the error message.
        read_packed: Reads the compressed records, if the kind has any.
        write_packed: Stores them, and returns whether the file holds them.
    """

    record: type[R]
    without_log: str = ""
    read_packed: Callable[[Path], list[R]] | None = None
    write_packed: Callable[[Path, Sequence[R]], bool] | None = None

    def read_records(self, folder: Path) -> tuple[list[R], int]:
        """Reads a folder's compressed records and the complete lines of its log.

        Returns:
            The records, and the number of bytes of the log's complete lines.

        Raises:
            FleetToolsError: A file is damaged, or both are missing.
        """
        log, packed = folder / self.log_name, self.packed(folder)
        if packed is None or self.read_packed is None:
            return read_records(log, self.record, self.error, self.without_log)
        records = self.read_packed(packed)
        if not os.path.lexists(log):
            return records, 0
        more, size = read_records(log, self.record, self.error)
        both = {record.to_json() for record in records}  # after a kill, the log holds them, too
        return records + [each for each in more if each.to_json() not in both], size

    def records_file(self, folder: Path) -> Path:
        """Returns the file of a folder's records, for messages."""
        return self.packed(folder) or folder / self.log_name


class RecordWriter(LockedFolder[D], Generic[D, R]):
    """Appends records to a new folder, or to one whose document is the same.

    Args:
        kind, folder, document: See `LockedFolder`.

    Attributes:
        document: As given, with the order dependence that earlier runs found.
        records: All records so far.

    Raises:
        FleetToolsError: See `LockedFolder`.
    """

    def __init__(self, kind: RecordKind[D, R], folder: Path, document: D) -> None:
        self._kind, self._packed = kind, False
        super().__init__(kind, folder, document)
        update = {"order_dependence": self.present.order_dependence}
        self.document = document.model_copy(update=update)
        try:
            self.records, size = kind.read_records(folder)
            self._log.truncate(size)
        except BaseException:
            self.close()
            raise

    def pack(self, records: Sequence[R]) -> None:
        """Stores all records in compressed form; closing the writer then removes the log.

        Args:
            records: All records so far, in the order in which they are to be read.

        Raises:
            OSError: The disk is full or gone; the log holds what it held.
        """
        name, write = self._kind.packed_name, self._kind.write_packed
        if name is not None and write is not None and write(self.folder / name, records):
            self._packed = True

    def close(self) -> None:
        """Releases the folder to other processes."""
        if self._packed:
            self._packed = False
            self._log_path.unlink(missing_ok=True)
        super().close()

    def append(self, record: R) -> None:
        """Stores a record.

        Raises:
            OSError: The disk is full or gone; the folder is unchanged.
        """
        self._packed = False
        self._log.append(record.to_json())
        self.records.append(record)

    @contextlib.contextmanager
    def marking(self) -> Iterator[None]:
        """Stores that the records depend on their order where this is found, see `Document`."""
        try:
            yield
        except OrderDependenceError as error:
            update = {"order_dependence": str(error)}
            self.document = self.document.model_copy(update=update)
            self.replace_document(self.document)
