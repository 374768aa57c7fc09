"""With an empty cache, one of several workers compiles, and the others load."""

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cloudpickle
import pytest

from fleet_tools.parallel.workers import LostJob, WorkerOptions

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not import pytest

FUNCTIONS = 4

NUMBA, LAZILY = "njit(cache=True)", "compiled"
"""Decorators: numba is imported with the module, or by the first call."""

WORKERS = 3


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an empty cache, and one for the marks of workers."""
    for name in ("modules", "cache", "present", "compiled"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path / "modules")
    return tmp_path


def mark(folder: Path) -> int:
    """Leaves a mark of this process, and returns the number of all."""
    (folder / str(os.getpid())).touch()
    return len(list(folder.iterdir()))


def await_all(folder: Path) -> None:
    while len(list(folder.iterdir())) < WORKERS:
        time.sleep(0.01)


def make_work(folder: Path) -> Callable[[int], int]:
    """Returns a function that calls all functions once all workers are there.

    Its result is the number of functions that its worker has compiled.
    """
    import some_functions  # pyright: ignore[reportMissingImports]

    def work(job: int) -> int:
        mark(folder / "present")
        await_all(folder / "present")
        for k in range(FUNCTIONS):
            assert getattr(some_functions, f"f{k}")(job) == 2.5 * job + k
        functions = [getattr(some_functions, f"f{k}") for k in range(FUNCTIONS)]  # numba's by now
        return sum(sum(function.stats.cache_misses.values()) for function in functions)

    return work


def make_meeting(folder: Path) -> Callable[[int], int]:
    """As `make_work`; all but the first then wait until every worker has compiled."""
    work = make_work(folder)

    def meet(job: int) -> int:
        compiled = work(job)
        if mark(folder / "compiled") > 1:
            await_all(folder / "compiled")
        return compiled

    return meet


def write_module(folder: Path, decorator: str) -> None:
    (folder / "modules/some_functions.py").write_text(
        ("" if decorator == LAZILY else "from numba import njit\n")
        + "from fleet_tools.utils.compiled import compiled\n"
        + "".join(
            f"@{decorator}\ndef f{k}(x):\n    return x * 2.5 + {k}\n" for k in range(FUNCTIONS)
        )
    )


def compiled_by_each(make: Callable[[], Callable[[int], int]]) -> list[int]:
    results = [n for _, n in WorkerOptions(workers=WORKERS).run(range(WORKERS), make)]
    return sorted(n for n in results if not isinstance(n, LostJob))


@pytest.mark.parametrize("decorator", [pytest.param(NUMBA, marks=pytest.mark.slow), LAZILY])
def test_others_wait_for_the_first_that_compiles(folder, decorator):
    write_module(folder, decorator)
    for most, missed in ((FUNCTIONS, 1), (0, 0)):  # with an empty cache, and with a filled one
        for file in (folder / "present").iterdir():
            file.unlink()
        *others, first = compiled_by_each(partial(make_work, folder))
        assert len(others) == WORKERS - 1
        assert first == most and max(others) <= missed  # before they waited


@pytest.mark.slow
def test_where_nothing_can_be_cached_others_wait_for_the_first_alone(folder):
    write_module(folder, "njit(cache=False)")
    assert compiled_by_each(partial(make_meeting, folder)) == [FUNCTIONS] * WORKERS
