"""Files that are there as a whole or not at all, and then last."""

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

_MARK = ".aside"


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yields a path beside `path` to write to, which takes its place when all went well.

    It is on the disk then, and its name, too, whatever happens to the machine.
    """
    aside = path.with_name(f".{path.stem}.{os.getpid()}{_MARK}{path.suffix}")
    try:
        yield aside
        _flush(aside)
        os.replace(aside, path)
        _flush(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def leftovers(folder: Path) -> list[Path]:
    """Returns what `whole` left in a folder and those in it where the process was killed."""
    return list(folder.rglob(f".*{_MARK}*"))


def is_blank(folder: Path, names: Collection[str]) -> bool:
    """Whether there is nothing but what `whole` left, and empty files or folders of some names."""
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
