"""Folders with a JSON document and a log, locked for one writing process.

There are two kinds: folders of single records (`record_folder`), of which the log is all there is,
and folders of runs (`run_folder`), whose log follows from a state. Both are created, claimed,
repaired after a crash and resumed in the same way.
"""

import contextlib
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Self, TypeVar

from fleet_tools.config.values import STORED_IF_SET, Value, differences, parse
from fleet_tools.errors import ConfigError, FleetToolsError
from fleet_tools.storage.atomic_files import is_blank, leftovers, write_file
from fleet_tools.storage.strict_json import load
from fleet_tools.utils.disk_errors import disk_errors

RESTORE = "Restore it from a copy."
"""Remedy for a damaged file, for error messages."""


class AppendLog:
    """Appends lines to a file, each on the disk before the next; one process at a time.

    A line that a crash tore has no newline, and never counts.

    Args:
        path: Path of the file, which exists.

    Raises:
        BlockingIOError: Another process is writing to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with disk_errors(path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(self._descriptor).st_nlink:
                raise BlockingIOError  # another process has just packed and removed it
        except BaseException:
            self.close()
            raise

    def truncate(self, size: int) -> None:
        """Removes all but the first `size` bytes, which are the complete lines."""
        with disk_errors(self._path):
            os.ftruncate(self._descriptor, size)
            os.fsync(self._descriptor)

    def append(self, line: str) -> None:
        """Adds a line, given without its newline.

        Raises:
            DiskError: The disk is full, read-only or broken; the file is unchanged, or its last
                line has no newline, where even that cannot be mended.
        """
        row = line.encode() + b"\n"
        with disk_errors(self._path, len(row)):
            size, rest = os.fstat(self._descriptor).st_size, memoryview(row)
            try:
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
                os.fsync(self._descriptor)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._descriptor, size)
                raise

    def close(self) -> None:
        """Releases the file to other processes."""
        os.close(self._descriptor)


class Document(Value):
    """Base of the documents that describe a folder.

    Attributes:
        order_dependence: Message of an `OrderDependenceError`; None if no worker found one.
    """

    order_dependence: Annotated[str | None, STORED_IF_SET] = None

    def essence(self) -> dict[str, object]:
        """Returns the properties that must be equal within one folder, by name."""
        return self.model_dump(mode="json")

    def differences(self, other: Self) -> list[str]:
        """Lists the differences in properties that must be equal within one folder."""
        return differences(self.essence(), other.essence())


V = TypeVar("V", bound=Value)
D = TypeVar("D", bound=Document)


def read_document(
    path: Path,
    kind: type[V],
    version: int,
    error: type[FleetToolsError],
    version_key: str = "schema_version",
    remedy: str = RESTORE,
) -> V:
    """Reads a JSON document.

    Args:
        path: Path of the file.
        kind: Class of its content.
        version: Present version of the content.
        error: Class of the errors raised.
        version_key: Key of its version.
        remedy: What can be done about a damaged one.

    Raises:
        FleetToolsError: The document is missing, damaged or of an unknown version.
    """
    found = read_version(path, error, version_key, remedy)
    if found != version:
        raise error(
            f"{path} has {version_key.replace('_', ' ')} {found!r}; this version of Fleet-Tools "
            f"reads {version}. Use the version of Fleet-Tools that wrote it."
        )
    try:
        return parse(kind, load(path), str(path))
    except ConfigError as raised:
        raise error(f"{raised}\n{remedy}") from raised


def read_version(
    path: Path,
    error: type[FleetToolsError],
    version_key: str = "schema_version",
    remedy: str = RESTORE,
) -> Any:
    """Returns the version of a document; None if it names none.

    Raises:
        FleetToolsError: The document is missing or damaged.
    """
    try:
        data = load(path)
    except (OSError, ValueError) as raised:
        raise error(f"{path} is damaged: {raised}. {remedy}") from raised
    return data.get(version_key) if isinstance(data, dict) else None


@dataclass(frozen=True, kw_only=True)
class FolderKind(Generic[D]):
    """A kind of folder.

    Attributes:
        what: Its name in messages, with its article, such as "a dataset".
        maker: Command that makes one.
        error: Class of the errors raised.
        document: Class of the document.
        document_name: File name of the document.
        version: Version of the document and the log.
        version_key: Key of the version in the document.
        log_name: File name of the log.
        log_follows: Whether the log follows from other files, so that an absent one is empty.
        packed_name: File name of compressed records, which a finished folder has in place of a log,
            and a resumed one beside it; None if the log stays.
        subfolders: Names of folders that a new one holds.
        remedy: What can be done about a damaged document.
    """

    what: str
    maker: str
    error: type[FleetToolsError]
    document: type[D]
    document_name: str
    version: int
    version_key: str = "schema_version"
    log_name: str
    log_follows: bool = False
    packed_name: str | None = None
    subfolders: tuple[str, ...] = ()
    remedy: str = RESTORE

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
        return read_document(
            path, self.document, self.version, self.error, self.version_key, self.remedy
        )

    def packed(self, folder: Path) -> Path | None:
        """Returns the file of a folder's compressed records; None if there is none."""
        path = self.packed_name and folder / self.packed_name
        return path if path and os.path.lexists(path) else None

    def lock(self, folder: Path) -> AppendLog:
        """Claims a folder by its log.

        Raises:
            FleetToolsError: Another process is writing to the folder.
        """
        try:
            return AppendLog(folder / self.log_name)
        except BlockingIOError:
            raise self.error(f"Another process is writing to {folder}.") from None


class LockedFolder(Generic[D]):
    """Claims a new folder, or one with the same document, and removes the remains of a crash.

    Args:
        kind: Kind of the folder.
        folder: Created if it does not exist; otherwise blank, or a folder of the kind.
        document: Describes what it holds.

    Attributes:
        folder, document: As given.
        present: The document that the folder had, or got.

    Raises:
        FleetToolsError: The folder holds something else, or another process is writing to it.
    """

    def __init__(self, kind: FolderKind[D], folder: Path, document: D) -> None:
        self.folder, self.document, self.present = folder, document, document
        self._document_path = folder / kind.document_name
        self._log_path = folder / kind.log_name
        if self._document_path.exists():
            self.present = kind.read_document(folder)
            if differences := self.present.differences(document):
                raise kind.error(
                    f"{folder} already holds {kind.what} with other options: "
                    f"{'; '.join(differences)}. Give another --output, or the same options to "
                    "resume it."
                )
            if kind.log_follows or kind.packed(folder):
                self._log_path.touch()
        else:
            if folder.exists() and not is_blank(folder, (kind.log_name, *kind.subfolders)):
                raise kind.error(
                    f"{folder} is not empty and is not {kind.what}. Give another --output."
                )
            for subfolder in (folder, *(folder / name for name in kind.subfolders)):
                subfolder.mkdir(parents=True, exist_ok=True)
            self._log_path.touch()
            self.replace_document(document)  # last: it makes it such a folder
        self._log = kind.lock(folder)
        try:
            for leftover in leftovers(folder):
                leftover.unlink()
        except BaseException:
            self.close()
            raise

    def replace_document(self, document: D) -> None:
        """Stores a new version of the document, completely or not at all."""
        text = document.model_dump_json(indent=2, by_alias=True)
        write_file(self._document_path, text + "\n")

    def close(self) -> None:
        """Releases the folder to other processes."""
        self._log.close()

    def __enter__(self) -> Self:
        """Returns the writer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Releases the folder."""
        self.close()
