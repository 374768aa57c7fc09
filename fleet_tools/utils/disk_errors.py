"""Disk errors with the file, the space that it needs, and the free space."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from fleet_tools.errors import DiskError

_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE)
"""Numbers of errors that end when the disk is mended, and that no other options avoid."""


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
    if error.errno != errno.ENOSPC:
        return f"{needs}{os.strerror(error.errno or 0)}"
    room = "" if path is None else f"; {needs}{_room(path)}"
    return f"no space is left on its disk{room}"


def _room(path: Path) -> str:
    """Says what is free where a file would lie."""
    folder = next(each for each in Path(os.path.abspath(path)).parents if each.is_dir())
    try:
        disk = shutil.disk_usage(folder)
    except OSError:  # gone
        return "its disk does not answer"
    return f"{_amount(disk.free)} of {_amount(disk.total)} are free in {folder}"


def _amount(size: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size / 1e3:.3g} kB"
