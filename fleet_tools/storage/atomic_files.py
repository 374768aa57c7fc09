"""Files and folders that appear complete or not at all, and then last."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

_MARK = ".aside"
_UNFINISHED = ".writing_"


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`, which replaces it when all went well.

    Content and name are then flushed to the disk, so that a power failure does not lose them.
    """
    short = path.stem[:50]  # a name may have 255 bytes
    aside = path.with_name(f".{short}.{os.getpid()}{_MARK}{path.suffix}")
    try:
        yield aside
        _flush(aside)
        os.replace(aside, path)
        _flush(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def replace_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replaces a folder, whole or not at all.

    Args:
        folder: The folder; it need not exist.
        files: Content of its files by relative path.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=_UNFINISHED) as aside:
        new, old = Path(aside) / "new", Path(aside) / "old"
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
    """Removes what a killed `replace_folder` left below a folder to which nobody is writing."""
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
