"""Atomic writes: files and folders appear complete or not at all, and are synced to disk."""

import contextlib
import glob
import hashlib
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from fleet_tools.utils.disk_errors import disk_error, disk_errors

_MARK = ".aside"
_UNFINISHED = ".writing_"


def write_file(path: Path, content: bytes | str) -> None:
    """Stores a file, completely or not at all, so that a power failure does not lose it.

    Args:
        path: The file; an existing one is replaced.
        content: Its content; text is stored as UTF-8.

    Raises:
        DiskError: The disk is full, read-only or broken; an existing file is unchanged.
        OSError: It cannot be written for another reason; likewise.
    """
    data = content.encode() if isinstance(content, str) else content
    with atomic_write(path, len(data)) as aside:
        aside.write_bytes(data)


@contextlib.contextmanager
def atomic_write(path: Path, size: int | None = None) -> Iterator[Path]:
    """Yields a temporary path beside `path`, for other libraries to write to; see `write_file`.

    Args:
        path: The file; an existing one is replaced when all went well.
        size: Size of the new content, bytes, if it is known.
    """
    short = path.stem[:50]  # a name may have 255 bytes
    aside = path.with_name(f".{short}.{os.getpid()}{_MARK}{path.suffix}")
    with temporary(aside, path, size):
        yield aside
        _flush(aside)
        os.replace(aside, path)
        _flush(path.parent)


@contextlib.contextmanager
def temporary(aside: Path, path: Path, size: int | None = None) -> Iterator[None]:
    """Removes unmoved files, and raises errors of the disk as `DiskError`.

    Args:
        aside: A file or a folder, which need not exist.
        path: What is made in it, for messages.
        size: Size of what is made, bytes, if it is known.
    """
    written = 0
    try:
        try:
            yield
        except OSError:
            with contextlib.suppress(OSError):
                written = _allocated(aside)
            raise
        finally:
            _remove(aside)
    except OSError as error:  # what is free now is what there is for another attempt
        if (of_the_disk := disk_error(error, path, size, written)) is error:
            raise
        raise of_the_disk from error


@contextlib.contextmanager
def temporary_in(folder: Path, target: Path, size: int | None = None) -> Iterator[Path]:
    """Yields a path for a file or a folder, which is to be moved to its target; see `temporary`.

    What killed processes left of the same target is removed.

    Args:
        folder: Existing folder on the target's disk.
        target: The target.
        size: Size of what is made, bytes, if it is known.
    """
    name = target.name  # one of 255 bytes has no room for more
    if len(os.fsencode(name)) > 100:
        name = hashlib.blake2b(os.fsencode(name), digest_size=16).hexdigest()
    for former in folder.glob(f"{_UNFINISHED}{glob.escape(name)}.*"):
        process = former.name.rpartition(".")[2]
        if process.isdecimal() and (int(process) == os.getpid() or not _is_running(int(process))):
            _remove(former)
    aside = folder / f"{_UNFINISHED}{name}.{os.getpid()}"
    with temporary(aside, target, size):
        yield aside


def replace_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replaces a folder, whole or not at all.

    Args:
        folder: The folder; it need not exist.
        files: Content of its files by relative path.

    Raises:
        DiskError: The disk is full, read-only or broken; an existing folder is unchanged.
        OSError: It cannot be written for another reason; likewise.
    """
    size = sum(map(len, files.values()))
    with disk_errors(folder, size):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with temporary_in(folder.parent, folder, size) as aside:
            new, old = aside / "new", aside / "old"
            for path, content in files.items():
                (new / path).parent.mkdir(parents=True, exist_ok=True)
                (new / path).write_bytes(content)
            if folder.exists():
                folder.rename(old)
            try:
                new.rename(folder)
            except OSError:
                if old.exists():
                    old.rename(folder)
                raise


def clear_unfinished(folder: Path) -> None:
    """Removes the remains of a killed `replace_folder` in a folder that no process writes to."""
    for path in list(folder.rglob(f"{_UNFINISHED}*")):
        shutil.rmtree(path, ignore_errors=True)


def leftovers(folder: Path) -> list[Path]:
    """Returns the temporary files below a folder that killed processes left."""
    return list(folder.rglob(f".*{_MARK}*"))


def clear_old_leftovers(folder: Path, older_than_s: float = 3600.0) -> None:
    """Removes temporary files of a folder to which several processes may be writing.

    Args:
        folder: The folder, which may be absent.
        older_than_s: Age of a file that no living process is still writing.
    """
    for path in leftovers(folder):
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            if time.time() - path.stat().st_mtime > older_than_s:
                path.unlink()


def is_blank(folder: Path, names: Collection[str]) -> bool:
    """Whether a folder holds nothing but leftovers, and empty files or folders of given names."""
    left = leftovers(folder)
    return folder.is_dir() and all(
        path in left or (path.name in names and not _holds_anything(path))
        for path in folder.iterdir()
    )


def _holds_anything(path: Path) -> bool:
    return any(path.iterdir()) if path.is_dir() else path.stat().st_size > 0


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # of another user, or no number of a process
        pass
    return True


def _allocated(path: Path) -> int:
    """Returns the room that a file or folder takes, bytes; 0 if it is absent."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(512 * file.stat().st_blocks for file in files if file.is_file())
