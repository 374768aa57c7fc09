"""Progress bars, which are drawn on terminals, and lines elsewhere."""

import io
import itertools
import sys
import threading
from typing import Any

import pytest

from fleet_tools.utils.progress import LINE_SECONDS, ProgressLines, TallyBar


class Terminal(io.StringIO):
    """A terminal, on which progress bars are drawn."""

    def isatty(self) -> bool:
        return True


def progress_of(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, **options: Any) -> str:
    """Returns what a bar of four episodes shows at its end, after a success and a failure."""
    monkeypatch.setattr(sys, "stderr", stderr)
    with TallyBar(4, "episode", **options) as bar:
        bar.update("success")
        bar.update("time_limit")
    return stderr.getvalue().strip().rpartition("\r")[2]


def test_a_progress_bar_counts_outcomes(monkeypatch):
    everything = progress_of(monkeypatch, Terminal())
    assert "2/4" in everything and "1 success, 1 time_limit" in everything
    resumed = progress_of(monkeypatch, Terminal(), tally={"success": 1}, counted="success")
    assert "2/4" in resumed and "2 success, 1 time_limit" in resumed


def test_what_ends_within_a_minute_or_is_quiet_says_nothing_without_a_terminal(monkeypatch):
    assert progress_of(monkeypatch, io.StringIO()) == ""
    assert progress_of(monkeypatch, Terminal(), quiet=True) == ""


def test_without_a_terminal_a_line_a_minute_says_how_far_it_is(monkeypatch):
    """The clock is handed in: a minute passes when the test says so."""
    monkeypatch.setattr(sys, "stderr", stderr := io.StringIO())
    minute, waiting = threading.Semaphore(0), threading.Semaphore(0)
    minutes, closed = itertools.count(), threading.Event()

    def wait(seconds: float) -> bool:
        assert seconds == LINE_SECONDS
        waiting.release()
        minute.acquire()
        return closed.is_set()

    with ProgressLines(4, "episode", 1, wait=wait, clock=lambda: 60.0 * next(minutes)) as lines:
        waiting.acquire()
        lines.set_postfix_str("1 success")
        lines.update()
        minute.release()
        waiting.acquire()  # the line has been written
        assert stderr.getvalue() == "episode 2/4 after 1:00, 1 success\n"
        lines.update(2)
        closed.set()
        minute.release()
    lines.close()
    assert stderr.getvalue().splitlines()[1:] == ["episode 4/4 after 2:00, 1 success"]
