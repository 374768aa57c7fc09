"""Folders of records: a JSON document that describes them, and an append-only log.

Datasets, evaluations, training runs and fleets are such folders. A folder is created, claimed by
one process, repaired after a crash and appended to in one way.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Self, TypeVar

from fleet_tools.config.values import Value, differences
from fleet_tools.errors import FleetToolsError
from fleet_tools.storage.atomic_files import atomic_write
from fleet_tools.storage.json_documents import Upgrade, read_document, read_records
from fleet_tools.storage.locked_folder import LockedFolder, require_blank


class Document(Value):
    """Base of the documents that describe a folder of records."""

    def essence(self) -> dict[str, object]:
        """Returns what must not differ within one folder, by its name in messages."""
        return self.model_dump(mode="json")

    def differences(self, other: Self) -> list[str]:
        """Lists what must not differ within one folder, and does."""
        return differences(self.essence(), other.essence())


D = TypeVar("D", bound=Document)
R = TypeVar("R", bound=Value)


@dataclass(frozen=True)
class FolderKind(Generic[D, R]):
    """A kind of folder.

    Attributes:
        what: Its name in messages, with its article, such as "a dataset".
        maker: Command that makes one.
        error: Class of the errors raised.
        document: Class of the document; it has `differences(other)`.
        document_name: File name of the document.
        version: Schema version of the document and the records.
        record: Class of a record.
        log_name: File name of the log.
        upgrades: By earlier version, how a document is brought to the next one.
        subfolders: Names of folders that a new one holds.
        without_log: What is unknown without the log, for the error message.
    """

    what: str
    maker: str
    error: type[FleetToolsError]
    document: type[D]
    document_name: str
    version: int
    record: type[R]
    log_name: str
    upgrades: Mapping[int, Upgrade] = field(default_factory=dict)
    subfolders: tuple[str, ...] = ()
    without_log: str = ""

    def read_document(self, folder: Path) -> D:
        """Reads the document of a folder.

        Raises:
            FleetToolsError: It is missing, damaged or of an unknown version.
        """
        path = folder / self.document_name
        if not path.exists():
            raise self.error(
                f"{folder} is not {self.what}: it has no {self.document_name}. "
                f"`{self.maker}` makes one."
            )
        return read_document(path, self.document, self.version, self.error, self.upgrades)

    def read_records(self, folder: Path) -> tuple[list[R], int]:
        """Reads the complete lines of a folder's log.

        Returns:
            The records, and the number of bytes that they take.

        Raises:
            FleetToolsError: The log is missing or damaged.
        """
        return read_records(folder / self.log_name, self.record, self.error, self.without_log)


class RecordWriter(LockedFolder, Generic[D, R]):
    """Appends records to a new folder, or to one whose document is the same.

    Args:
        kind: Kind of the folder.
        folder: Created if it does not exist; otherwise blank, or a folder of the kind.
        document: Describes the records.

    Attributes:
        kind, folder: As given.
        records: All records so far.

    Raises:
        FleetToolsError: The folder holds something else, or another process is writing to it.
    """

    def __init__(self, kind: FolderKind[D, R], folder: Path, document: D) -> None:
        self.kind = kind
        if (folder / kind.document_name).exists():
            require_same(kind.read_document(folder), document, folder, kind.what, kind.error)
        else:
            self._create(folder, document)
        super().__init__(folder, kind.log_name, kind.error)
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

    def replace_document(self, document: D) -> None:
        """Stores a new version of the document."""
        write_document(self.folder / self.kind.document_name, document)

    def _create(self, folder: Path, document: D) -> None:
        kind = self.kind
        require_blank(folder, (kind.log_name, *kind.subfolders), kind.what, kind.error)
        for subfolder in (folder, *(folder / name for name in kind.subfolders)):
            subfolder.mkdir(parents=True, exist_ok=True)
        (folder / kind.log_name).touch()
        write_document(folder / kind.document_name, document)  # last: it makes it such a folder


def require_same(
    present: D, given: D, folder: Path, what: str, error: type[FleetToolsError]
) -> None:
    """Checks that a folder's document agrees with the given one.

    Raises:
        FleetToolsError: They differ; the message says in what.
    """
    if differences := present.differences(given):
        raise error(
            f"{folder} already holds {what}, but another one: in it, {'; '.join(differences)}. "
            "Give another --output, or the same options to resume it."
        )


def write_document(path: Path, document: Value, indent: int = 2) -> None:
    """Stores a document, completely or not at all."""
    with atomic_write(path) as aside:
        aside.write_text(
            document.model_dump_json(indent=indent, by_alias=True) + "\n", encoding="utf-8"
        )
