"""Folders to which one process writes at a time, and their logs, which only grow.

A line that a crash tore never counts.
"""

import contextlib
import fcntl
import os
from collections.abc import Collection
from pathlib import Path
from typing import Self

from fleet_tools.errors import FleetToolsError
from fleet_tools.storage.atomic_files import is_blank, leftovers
from fleet_tools.utils.disk_errors import disk_errors


class AppendLog:
    """Appends lines to a file, each on the disk before the next; one process at a time.

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


class LockedFolder:
    """Claims a folder by its log, and removes what a crash may have left.

    Args:
        folder: Folder with the log.
        log_name: File name of the log.
        error: Class of the errors raised.

    Attributes:
        folder: As given.

    Raises:
        FleetToolsError: Another process is writing to the folder.
    """

    def __init__(self, folder: Path, log_name: str, error: type[FleetToolsError]) -> None:
        self.folder = folder
        try:
            self._log = AppendLog(folder / log_name)
        except BlockingIOError:
            raise error(f"Another process is writing to {folder}.") from None
        try:
            clear_leftovers(folder)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Releases the folder to other processes."""
        self._log.close()

    def __enter__(self) -> Self:
        """Returns the writer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Releases the folder."""
        self.close()


def require_blank(
    folder: Path, names: Collection[str], what: str, error: type[FleetToolsError]
) -> None:
    """Checks that a folder does not exist, or holds nothing of value.

    Args:
        folder: The folder.
        names: Names of files and folders that may be there, if they are empty.
        what: What is to be made in it, with its article, such as "a dataset".
        error: Class of the errors raised.

    Raises:
        FleetToolsError: The folder holds something else.
    """
    if folder.exists() and not is_blank(folder, names):
        raise error(f"{folder} is neither empty nor {what}. Give another --output.")


def clear_leftovers(folder: Path) -> None:
    """Removes the temporary files that killed processes left."""
    for leftover in leftovers(folder):
        leftover.unlink()
