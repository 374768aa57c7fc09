"""A file that only grows, line by line; a line that a crash tore never counts."""

import contextlib
import fcntl
import os
from pathlib import Path

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
