"""A disk that fills: a file system in memory where one may be mounted, else a limit of files."""

import contextlib
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

PAGE = 4096
"""Unit in which a file system in memory gives room, bytes."""

_ROOM, _INODES = 1 << 30, 1 << 16


class SmallDisk:
    """A file system in memory, in which the room that is left can be limited."""

    mounted = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mount("-t", "tmpfs", "-o", f"size={_ROOM},nr_inodes={_INODES}", "tmpfs")

    def used(self) -> int:
        """Returns the bytes in use."""
        disk = os.statvfs(self.folder)
        return (disk.f_blocks - disk.f_bfree) * disk.f_frsize

    @contextlib.contextmanager
    def room(self, size: int, *, inodes: int = _INODES) -> Iterator[None]:
        """Leaves room for some bytes, in whole pages, and for some files and folders."""
        disk = os.statvfs(self.folder)
        files = disk.f_files - disk.f_ffree + inodes
        self._remount(f"size={max(PAGE, self.used() + size // PAGE * PAGE)},nr_inodes={files}")
        try:
            yield
        finally:
            self._remount(f"size={_ROOM},nr_inodes={_INODES}")

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        """Lets nothing be written."""
        self._remount("ro")
        try:
            yield
        finally:
            self._remount("rw")

    def close(self) -> None:
        """Unmounts it, also where a file is still open or mapped."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def _remount(self, options: str) -> None:
        self._mount("-o", f"remount,{options}")

    def _mount(self, *options: str) -> None:
        subprocess.run(["mount", *options, str(self.folder)], check=True, capture_output=True)


class LimitedFiles:
    """What takes its place where nothing may be mounted: a limit of the size of each file."""

    mounted = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def used(self) -> int:
        """Returns the size of the largest file, bytes."""
        return max((file.stat().st_size for file in self.folder.rglob("*")), default=0)

    @contextlib.contextmanager
    def room(self, size: int) -> Iterator[None]:
        """Lets no file grow beyond a size."""
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    def close(self) -> None:
        """Does nothing."""


Disk = SmallDisk | LimitedFiles


def make_disk(folder: Path) -> Disk:
    """Returns a disk at an existing folder."""
    try:
        return SmallDisk(folder)
    except (OSError, subprocess.CalledProcessError):  # no `mount`, or no right to it
        return LimitedFiles(folder)
