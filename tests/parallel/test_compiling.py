"""With an empty cache, one of several workers compiles, and the others load."""

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cloudpickle
import pytest

from fleet_tools.parallel.options import WorkerOptions
from fleet_tools.parallel.workers import LostJob

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not import pytest

MODULE = """
from numba import njit

@njit(cache=True)
def first(x):
    return x + 1

@njit(cache=True)
def second(x):
    return x * 2.5
"""

WORKERS = 3


def make_work(folder: Path) -> Callable[[int], list[str]]:
    """Returns a function that calls both once all workers are there, and says what it compiled."""
    import first_and_second  # pyright: ignore[reportMissingImports]
    from numba.core import event

    recorder = event.RecordingListener()
    event.register("numba:compile", recorder)

    def work(job: int) -> list[str]:
        (folder / str(os.getpid())).touch()
        while len(list(folder.iterdir())) < WORKERS:
            time.sleep(0.01)
        assert first_and_second.second(first_and_second.first(job)) == 2.5 * (job + 1)
        starts = (each for _, each in recorder.buffer if each.is_start)
        return [each.data["dispatcher"].py_func.__name__ for each in starts]

    return work


def test_others_wait_for_the_first_that_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("modules", "cache", "workers"):
        (tmp_path / name).mkdir()
    (tmp_path / "modules/first_and_second.py").write_text(MODULE)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path / "modules")
    work = partial(make_work, tmp_path / "workers")
    for expected in (1, 0):  # with the empty cache, and with what it holds then
        for file in (tmp_path / "workers").iterdir():
            file.unlink()
        results = [r for _, r in WorkerOptions(workers=WORKERS).run(range(WORKERS), work)]
        compiled = [name for each in results if not isinstance(each, LostJob) for name in each]
        assert len(results) == WORKERS and compiled.count("second") == expected
