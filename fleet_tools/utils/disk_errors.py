"""Disk errors with the file, the space that it needs, and the free space."""

import contextlib
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from fleet_tools.errors import DiskError

_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE)
"""Numbers of errors that end when the disk is mended, and that no other options avoid."""

_FEW_FILES = 1000
"""Number of files below which a message says how many there may still be."""


@contextlib.contextmanager
def disk_errors(path: Path | None = None, size: int | None = None) -> Iterator[None]:
    """Raises errors of the disk as `DiskError`.

    Args:
        path: The file or folder that is being stored; the error's if None.
        size: Its size, bytes, if it is known.

    Raises:
        DiskError: The disk is full, read-only or broken.
        OSError: Another error of the system, as it was raised.
    """
    try:
        yield
    except OSError as error:
        if (of_the_disk := disk_error(error, path, size)) is error:
            raise
        raise of_the_disk from error


def disk_error(
    error: OSError, path: Path | None = None, size: int | None = None, written: int = 0
) -> OSError:
    """Returns an error of the system as a `DiskError` if it is one of the disk.

    Args:
        error: As it was raised; one of another kind is returned.
        path: The file or folder that is being stored; the error's if None.
        size: Its size, bytes, if it is known.
        written: Size of the part that was written, bytes, if that is all that is known.
    """
    if isinstance(error, DiskError) or error.errno not in _OF_THE_DISK:
        return error
    if path is None and isinstance(error.filename, str | bytes):
        path = Path(os.fsdecode(error.filename))
    subject = "The output, or a temporary file," if path is None else str(path)
    needs = "" if size is None else f"it needs {_amount(size)}, and "
    if size is None and written:
        needs = f"it needs more than {_amount(written)}, and "
    return DiskError(f"{subject} cannot be stored: {_reason(error, path, needs)}")


def _reason(error: OSError, path: Path | None, needs: str) -> str:
    match error.errno:
        case errno.ENOSPC:
            room = "" if path is None else f"; {needs}{_room(path)}"
            return f"no space is left on its disk{room}"
        case errno.EDQUOT:
            return f"{needs}your quota on its disk is exhausted (`quota`)"
        case errno.EFBIG:
            limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
            most = "its file system" if limit < 0 else f"`ulimit -f`, {_amount(limit)},"
            return f"{needs}it is larger than {most} allows"
        case errno.EROFS:
            return "its file system is read-only"
        case _:
            return f"its disk fails ({error.strerror})"


def _room(path: Path) -> str:
    """Says what is free where a file would lie."""
    folder = next(each for each in Path(os.path.abspath(path)).parents if each.is_dir())
    try:
        disk = os.statvfs(folder)
    except OSError:  # gone
        return "its disk does not answer"
    free, total = (_amount(count * disk.f_frsize) for count in (disk.f_bavail, disk.f_blocks))
    inodes = ""
    if disk.f_files and disk.f_favail < _FEW_FILES:
        inodes = f" and {disk.f_favail} of {disk.f_files} inodes"
    return f"{free} of {total}{inodes} are free in {folder}"


def _amount(size: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size / 1e3:.3g} kB"
