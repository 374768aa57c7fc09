"""Folders of single records: an append-only log, such as datasets and evaluations have."""

import contextlib
from collections.abc import Iterator
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
    """

    record: type[R]
    without_log: str = ""

    def read_records(self, folder: Path) -> tuple[list[R], int]:
        """Reads the complete lines of a folder's log, see the function `read_records`."""
        return read_records(folder / self.log_name, self.record, self.error, self.without_log)


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
        super().__init__(kind, folder, document)
        update = {"order_dependence": self.present.order_dependence}
        self.document = document.model_copy(update=update)
        try:
            self.records, size = kind.read_records(folder)
            self._log.truncate(size)
        except BaseException:
            self.close()
            raise

    def append(self, record: R) -> None:
        """Stores a record.

        Raises:
            OSError: The disk is full or gone; the folder is unchanged.
        """
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
