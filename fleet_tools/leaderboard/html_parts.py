"""Parts of HTML pages: their head, videos, and success rates as plots in SVG and in tables."""

import base64
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from fleet_tools.leaderboard.board import Clip
from fleet_tools.leaderboard.standings import SuccessRate
from fleet_tools.leaderboard.wording import interval, percent

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; media-src data:"
)

_WIDTH, _ROW_HEIGHT, _TOP, _BOTTOM = 360, 26, 8, 26
_LEFT, _RIGHT = 136, 18
"""Margins, for names and for half of the last tick's number."""

_LONGEST_NAME = 16


def page_head(title: str) -> Iterator[str]:
    """Yields the lines of a page before the content of its body.

    Args:
        title: Title of the page.
    """
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">'
    yield f"<title>{escape(title)}</title>"
    style = (files("fleet_tools.leaderboard") / "page.css").read_text("utf-8")
    yield f"<style>\n{style}</style></head><body>"


def figure(label: str, clip: Clip, caption: str) -> str:
    """Returns a clip as HTML, which holds its video.

    Args:
        label: What the video shows, for who cannot see it.
        clip: The clip.
        caption: Text below it.
    """
    source = base64.b64encode(clip.video).decode()
    return (
        f'<figure class="clip"><video controls loop muted playsinline preload="auto" '
        f'width="{clip.width}" height="{clip.height}" aria-label="{escape(label)}" '
        f'src="data:video/mp4;base64,{source}"></video>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def forest_plot(title: str, rows: Sequence[tuple[str, SuccessRate]]) -> str:
    """Returns a plot with a row for each method: a dot for the rate, a bar for its interval.

    If a method was trained several times, a small ring shows the rate of each training run.

    Args:
        title: Title for screen readers.
        rows: Names and success rates of the methods, from top to bottom.
    """
    height = _TOP + _ROW_HEIGHT * len(rows) + _BOTTOM
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
    ]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, end = _x(tick), height - _BOTTOM
        parts.append(f'<line class="grid" x1="{x}" y1="{_TOP}" x2="{x}" y2="{end}"/>')
        parts.append(f'<text class="tick" x="{x}" y="{height - 8}">{tick:.0%}</text>')
    for k, (name, rate) in enumerate(rows):
        parts += _plot_row(_TOP + _ROW_HEIGHT * (k + 0.5), name, rate)
    return "".join([*parts, "</svg>"])


def _plot_row(y: float, name: str, success: SuccessRate) -> list[str]:
    title = f"{name}: {percent(success.rate)}, {interval(success)}"
    short = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}\u2026"
    low, high = _x(success.low), _x(success.high)
    rings = success.of_training_runs if len(success.of_training_runs) > 1 else ()
    return [
        f"<g><title>{escape(title)}</title>",
        f'<text class="name" x="{_LEFT - 12}" y="{y + 4:g}">{escape(short)}</text>',
        f'<line class="interval" x1="{low}" y1="{y:g}" x2="{high}" y2="{y:g}"/>',
        *(
            f'<circle class="training-run" cx="{_x(rate)}" cy="{y:g}" r="3"/>'
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
    return f"{_LEFT + rate * (_WIDTH - _LEFT - _RIGHT):.1f}"


def cell(value: float | None, content: str, kind: str = "") -> str:
    """Returns a cell of a table: its content, and the value by which its column is sorted."""
    kind = f' class="{kind}"' if kind else ""
    return f'<td{kind} data-value="{"" if value is None else f"{value:.6g}"}">{content}</td>'


def success_cell(success: SuccessRate | None) -> str:
    """Returns the cell of a success rate, with a bar of its interval."""
    if success is None or success.rate is None:
        return cell(None, '<span class="none">no result</span>')
    low, rate, high = (f"{100 * v:.2f}%" for v in (success.low, success.rate, success.high))
    bar = f'<i class="bar" style="--low:{low};--rate:{rate};--high:{high}"></i>'
    limits = f"{100 * success.low:.1f} to {100 * success.high:.1f}"
    return cell(success.rate, f"<b>{percent(success.rate)}</b>{bar}<small>{limits}</small>")
