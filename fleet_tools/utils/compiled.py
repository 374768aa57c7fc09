"""Compiles loops to machine code with the same results on every processor.

For arithmetic without branches see `fleet_tools.utils.straight_line`, which needs no cache.
"""

import atexit
import contextlib
import functools
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

SHARED_FOLDER = "FLEET_TOOLS_COMPILED"
"""Environment variable with the folder of compiled code that the processes of a run share."""

before_compiling: list[Callable[[], None]] = []
"""Functions that are called once numba is imported, before a compiled function's first call."""

_NO_CACHE = (
    "There is no place to keep compiled code: neither {} nor your cache folder can be written. "
    "Every run with point clouds compiles again, which takes 1 to 3 s. Set NUMBA_CACHE_DIR to a "
    "writable folder."
)


def compiled(function: F) -> F:
    """Returns a function of numbers and arrays as compiled code, kept in numba's cache.

    The code rounds as IEEE 754 and the order of the source say, on every processor: numba fuses and
    reorders nothing unless it is told to. The function may use scalar arithmetic, loops and `math`,
    but not `@`, `np.dot` or `np.linalg`: these call BLAS, whose rounding depends on the processor.
    What allocates, slices or unpacks arrays takes several times as long to compile.

    It may call compiled functions of its own file only: numba compiles a function anew when its
    file has changed, and looks at no other file.

    The cache lies beside the file or, where that is not writable, in the user's cache folder. Where
    neither is, the processes of a run share a temporary one, see `share_compiled`.
    """
    return cast(F, _Compiled(function))


class _Compiled:
    """A function that numba, whose import takes a while, compiles at the first call.

    Args:
        function: The function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._dispatcher: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Returns the function's result."""
        if self._dispatcher is None:
            # numba has to find its own kind under the names of all functions that this one calls.
            names = self._function.__globals__
            for name, value in list(names.items()):
                if isinstance(value, _Compiled) and value.__module__ == names["__name__"]:
                    names[name] = value._dispatcher = _dispatcher(value._function)
            self._dispatcher = self._dispatcher or _dispatcher(self._function)
            for prepare in before_compiling:
                prepare()
        return self._dispatcher(*arguments)


def share_compiled() -> Path | None:
    """Makes processes that start from here on share compiled code if no cache is possible.

    They find a temporary folder of this user alone, which is removed at the end of this process, in
    an environment variable.

    Returns:
        The folder; None if none can be made, or the given one is not this user's alone.
    """
    given = os.environ.get(SHARED_FOLDER)
    if given is not None:
        return Path(given) if _is_private(given) else None
    try:
        folder = tempfile.mkdtemp(prefix="fleet-tools-")
    except OSError:
        return None
    os.environ[SHARED_FOLDER] = folder
    atexit.register(_remove, folder, os.getpid())
    return Path(folder)


def cache_folder() -> str | None:
    """Returns the cache folder for code of this folder; None if there is none."""
    from numba import njit

    try:
        return str(njit(cache=True)(_is_private).stats.cache_path)
    except RuntimeError:  # no place for a cache
        return None


def _dispatcher(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns numba's dispatcher of a function, with a cache if there is a place for one."""
    from numba import config as settings
    from numba import njit

    config: Any = settings
    with_cache = njit(cache=True, error_model="numpy")
    try:
        return _without_need_of_room(with_cache(function))
    except RuntimeError:  # no place for a cache
        folder = share_compiled()
        _say_once(folder, _NO_CACHE.format(Path(function.__code__.co_filename).parent))
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder or "")
    try:
        # It looks for its place now, and not again.
        return _without_need_of_room(with_cache(function))
    except RuntimeError:
        return njit(error_model="numpy")(function)
    finally:
        config.CACHE_DIR = before


def _without_need_of_room(dispatcher: Any) -> Any:
    """Lets what is compiled be used where no disk has room to keep it."""
    save = dispatcher._cache.save_overload

    def save_if_possible(*arguments: Any) -> None:
        with contextlib.suppress(OSError):
            save(*arguments)

    dispatcher._cache.save_overload = save_if_possible
    return dispatcher


def _say_once(folder: Path | None, message: str) -> None:
    """Prints a message unless a process of this run has done so."""
    try:
        if folder is not None:
            (folder / "said").touch(exist_ok=False)
    except OSError:
        return
    if folder is not None or not _said_without_folder:
        _said_without_folder.append(message)
        print(message, file=sys.stderr)


_said_without_folder: list[str] = []


def _is_private(folder: str) -> bool:
    """Returns whether a folder belongs to this user and nobody else may write or read it.

    Code is loaded from it.
    """
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not stat.S_IMODE(status.st_mode) & 0o077
    )


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # and not a fork of it
        shutil.rmtree(folder, ignore_errors=True)
