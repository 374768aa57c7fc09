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

FUNCTIONS = 4

MODULE = "from numba import njit\n" + "".join(
    f"@njit(cache=True)\ndef f{k}(x):\n    return x * 2.5 + {k}\n" for k in range(FUNCTIONS)
)

WORKERS = 3


def make_work(folder: Path) -> Callable[[int], int]:
    """Returns a function that calls all functions once all workers are there.

    Its result is the number of functions that its worker has compiled.
    """
    import some_functions  # pyright: ignore[reportMissingImports]
    from numba.core import event

    recorder = event.RecordingListener()
    event.register("numba:compile", recorder)

    def work(job: int) -> int:
        (folder / str(os.getpid())).touch()
        while len(list(folder.iterdir())) < WORKERS:
            time.sleep(0.01)
        for k in range(FUNCTIONS):
            assert getattr(some_functions, f"f{k}")(job) == 2.5 * job + k
        return sum(each.is_start for _, each in recorder.buffer)

    return work


def test_others_wait_for_the_first_that_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("modules", "cache", "workers"):
        (tmp_path / name).mkdir()
    (tmp_path / "modules/some_functions.py").write_text(MODULE)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path / "modules")
    work = partial(make_work, tmp_path / "workers")
    for most, missed in ((FUNCTIONS, 1), (0, 0)):  # with an empty cache, and with a filled one
        for file in (tmp_path / "workers").iterdir():
            file.unlink()
        compiled = [n for _, n in WorkerOptions(workers=WORKERS).run(range(WORKERS), work)]
        *others, first = sorted(n for n in compiled if not isinstance(n, LostJob))
        assert len(others) == WORKERS - 1
        assert first == most and max(others) <= missed  # before they waited
