"""Progress bars, which are drawn on terminals, and lines elsewhere."""

import io
import sys
from typing import Any

import pytest

from fleet_tools.utils import progress
from fleet_tools.utils.progress import TallyBar


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
    return stderr.getvalue().strip().replace("\r", "")


def test_a_progress_bar_counts_outcomes(monkeypatch):
    everything = progress_of(monkeypatch, Terminal())
    assert "2/4" in everything and "1 success, 1 time_limit" in everything
    resumed = progress_of(monkeypatch, Terminal(), tally={"success": 1}, counted="success")
    assert "2/4" in resumed and "2 success, 1 time_limit" in resumed


def test_what_ends_within_a_minute_or_is_quiet_says_nothing_without_a_terminal(monkeypatch):
    assert progress_of(monkeypatch, io.StringIO()) == ""
    assert progress_of(monkeypatch, Terminal(), quiet=True) == ""


def test_without_a_terminal_lines_say_how_far_it_is(monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    lines = progress_of(monkeypatch, io.StringIO()).splitlines()
    assert "episode 1/4 after 00:00, 1 success" in lines
    assert lines[-1] == "episode 2/4 after 00:00, 1 success, 1 time_limit"
