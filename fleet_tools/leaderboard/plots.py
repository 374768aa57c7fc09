"""Plots of success rates with intervals, as SVG that takes its colours from the page."""

from collections.abc import Sequence
from html import escape

from fleet_tools.leaderboard.board import interval, percent
from fleet_tools.leaderboard.standings import Success

WIDTH, ROW, TOP, BOTTOM = 360, 26, 8, 26
LEFT, RIGHT = 136, 18
"""Room for names, and for half a number."""

_LONGEST_NAME = 16


def forest(title: str, rows: Sequence[tuple[str, Success]]) -> str:
    """Returns a plot: a line for each method, a dot for the rate, a bar for its interval.

    Where a method was trained several times, a small ring stands for each training.

    Args:
        title: What it is of, for those who cannot see it.
        rows: Names and numbers, from top to bottom.
    """
    height = TOP + ROW * len(rows) + BOTTOM
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
    ]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, end = _x(tick), height - BOTTOM
        parts.append(f'<line class="grid" x1="{x}" y1="{TOP}" x2="{x}" y2="{end}"/>')
        parts.append(f'<text class="tick" x="{x}" y="{height - 8}">{tick:.0%}</text>')
    for k, (name, success) in enumerate(rows):
        parts += _line(TOP + ROW * (k + 0.5), name, success)
    return "".join([*parts, "</svg>"])


def _line(y: float, name: str, success: Success) -> list[str]:
    said = f"{name}: {percent(success.rate)}, {interval(success)}"
    short = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}\u2026"
    low, high = _x(success.low), _x(success.high)
    rings = success.of_trainings if len(success.of_trainings) > 1 else ()
    return [
        f"<g><title>{escape(said)}</title>",
        f'<text class="name" x="{LEFT - 12}" y="{y + 4:g}">{escape(short)}</text>',
        f'<line class="interval" x1="{low}" y1="{y:g}" x2="{high}" y2="{y:g}"/>',
        *(
            f'<circle class="training" cx="{_x(rate)}" cy="{y:g}" r="3"/>'
            for rate in rings
            if rate is not None
        ),
        *(
            [f'<circle class="rate" cx="{_x(success.rate)}" cy="{y:g}" r="5"/>']
            if success.rate is not None
            else []
        ),
        "</g>",
    ]


def _x(rate: float) -> str:
    return f"{LEFT + rate * (WIDTH - LEFT - RIGHT):.1f}"
