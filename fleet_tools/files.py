"""Files that are there as a whole or not at all, and then last."""

import contextlib
import os
from collections.abc import Iterator
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


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
