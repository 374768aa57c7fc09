"""Folders of records: a JSON document that describes them, and an append-only log of records.

Datasets and evaluations are such folders. A folder is created, claimed by one process, repaired
after a crash and appended to in one way.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Self, TypeVar

from fleet_tools.config.values import STORED_IF_SET, Value, differences, parse
from fleet_tools.errors import ConfigError, FleetToolsError, OrderDependenceError
from fleet_tools.storage.atomic_files import write_file
from fleet_tools.storage.locked_folder import LockedFolder, require_blank
from fleet_tools.storage.strict_json import load, loads

V = TypeVar("V", bound=Value)

VERSION_KEY = "schema_version"


def read_version(path: Path, error: type[FleetToolsError]) -> Any:
    """Returns the schema version of a document, whatever else it holds; None if it names none.

    Raises:
        FleetToolsError: The document is missing or damaged.
    """
    data = _read_json(path, error)
    return data.get(VERSION_KEY) if isinstance(data, dict) else None


def read_document(
    path: Path,
    kind: type[V],
    version: int,
    error: type[FleetToolsError],
) -> V:
    """Reads a JSON document.

    Args:
        path: Path of the file.
        kind: Class of its content.
        version: Present schema version.
        error: Class of the errors raised.

    Raises:
        FleetToolsError: The document is missing, damaged or of an unknown version.
    """
    data = _read_json(path, error)
    found = data.get(VERSION_KEY) if isinstance(data, dict) else None
    if found != version:
        raise error(
            f"{path} has schema version {found!r}; this version of Fleet-Tools reads {version}. "
            "Read it with the version that wrote it."
        )
    try:
        return parse(kind, data, str(path))
    except ConfigError as raised:
        raise error(f"{raised}\nRestore it from a copy.") from raised


def read_records(
    path: Path, kind: type[V], error: type[FleetToolsError], without: str = ""
) -> tuple[list[V], int]:
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
            f"{path} cannot be read: {raised.strerror}. Restore it from a copy{without}."
        ) from raised
    complete = content[: content.rfind(b"\n") + 1]
    records = []
    for number, line in enumerate(complete.splitlines(), 1):
        location = f"{path}:{number}"
        try:
            records.append(parse(kind, loads(line.decode()), location))
        except ValueError as raised:  # ConfigError is one, too
            raise error(f"{location} is damaged: {raised} Restore it from a copy.") from raised
    return records, len(complete)


def _read_json(path: Path, error: type[FleetToolsError]) -> Any:
    try:
        return load(path)
    except (OSError, ValueError) as raised:
        raise error(f"{path} is damaged: {raised}. Restore it from a copy.") from raised


class Document(Value):
    """Base of the documents that describe a folder of records.

    Attributes:
        order_dependence: Message of an `OrderDependenceError`; None if no worker found one.
    """

    order_dependence: Annotated[str | None, STORED_IF_SET] = None

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
    subfolders: tuple[str, ...] = ()
    without_log: str = ""

    def read_document(self, folder: Path) -> D:
        """Reads the document of a folder.

        Raises:
            FleetToolsError: It is missing, damaged or of an unknown version.
        """
        path = folder / self.document_name
        if not os.path.exists(path):  # `Path.exists` raises where a name is too long
            raise self.error(
                f"{folder} is not {self.what}: it has no {self.document_name}. "
                f"`{self.maker}` makes one."
            )
        return read_document(path, self.document, self.version, self.error)

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
        document: As given, with the order dependence that earlier runs found.
        records: All records so far.

    Raises:
        FleetToolsError: The folder holds something else, or another process is writing to it.
    """

    def __init__(self, kind: FolderKind[D, R], folder: Path, document: D) -> None:
        self.kind = kind
        if (folder / kind.document_name).exists():
            present = kind.read_document(folder)
            require_same(present, document, folder, kind.what, kind.error)
            update = {"order_dependence": present.order_dependence}
            document = document.model_copy(update=update)
        else:
            self._create(folder, document)
        self.document = document
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

    @contextlib.contextmanager
    def marking(self) -> Iterator[None]:
        """Stores that the records depend on their order where this is found, see `Document`."""
        try:
            yield
        except OrderDependenceError as error:
            update = {"order_dependence": str(error)}
            self.document = self.document.model_copy(update=update)
            self.replace_document(self.document)

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
    write_file(path, document.model_dump_json(indent=indent, by_alias=True) + "\n")
