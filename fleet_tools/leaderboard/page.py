"""A leaderboard as one HTML file, which loads nothing."""

import base64
from collections.abc import Iterator
from html import escape
from importlib.resources import files

from fleet_tools.leaderboard.board import (
    READING,
    SUBMITTING,
    Board,
    errors,
    facts,
    heads,
    percent,
    trainings,
    words,
)
from fleet_tools.leaderboard.clips import Clip
from fleet_tools.leaderboard.plots import forest
from fleet_tools.leaderboard.standings import Standing, Success

NOTHING_FROM_ELSEWHERE = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; media-src data:"
)


def as_html(board: Board) -> str:
    """Returns the page; the same board gives the same text."""
    here = files(__package__)
    style, script = ((here / name).read_text("utf-8") for name in ("page.css", "page.js"))
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{NOTHING_FROM_ELSEWHERE}">',
            "<title>Fleet-Tools leaderboard</title>",
            f"<style>\n{style}</style></head><body>",
            *_head(board),
            "<main>",
            *_table(board),
            *_plots(board),
            *_methods(board),
            *_refused(board),
            *_submitting(),
            "</main>",
            f"<script>\n{script}</script>",
            "</body></html>",
            "",
        ]
    )


def _head(board: Board) -> Iterator[str]:
    protocol = board.protocol
    episodes = len(protocol.trials())
    yield "<header><h1>Fleet-Tools leaderboard</h1>"
    yield (
        f"<p>Protocol <b>{escape(protocol.title)}</b> <code>{escape(board.digest)}</code>, "
        f"{episodes} episodes. {escape(protocol.description)}</p></header>"
    )


# --- The table ------------------------------------------------------------------------------


def _table(board: Board) -> Iterator[str]:
    tasks, splits = board.protocol.tasks, board.protocol.splits
    yield '<section aria-labelledby="all"><h2 id="all">Methods</h2>'
    yield '<div class="scroll" tabindex="0" role="region" aria-labelledby="all">'
    yield '<table class="sortable"><thead>'
    yield (
        '<tr class="groups"><td colspan="3"></td>'
        f'<th scope="colgroup" colspan="{len(tasks)}">Tools</th>'
        f'<th scope="colgroup" colspan="{len(splits)}">Splits</th>'
        f'<td colspan="{2 + bool(board.verifications)}"></td></tr><tr>'
    )
    for column, head in enumerate(heads(board)):
        sort = ' aria-sort="ascending"' if head == "rank" else ""
        kind = ' class="method"' if head == "method" else ""
        label = escape(words(head)).capitalize()
        yield (
            f'<th scope="col"{kind}{sort}>'
            f'<button type="button" data-column="{column}">{label}</button></th>'
        )
    yield "</tr></thead><tbody>"
    for number, row in enumerate(board.rows):
        yield _row(board, row, number)
    yield "</tbody></table></div>"
    yield from (f'<p class="note">{escape(paragraph)}</p>' for paragraph in READING)
    yield "</section>"


def _row(board: Board, row: Standing, number: int) -> str:
    spread = trainings(row)
    note = f"<small>{escape(spread)}</small>" if spread else ""
    failed = errors(row)
    return "".join(
        [
            "<tr>",
            _cell(row.rank, "" if row.rank is None else str(row.rank), "rank"),
            f'<th scope="row" class="method" data-value="{escape(row.name)}">'
            f'<a href="#method-{number}">{_breakable(row.name)}</a>{note}</th>',
            _success(row.total),
            *(_success(row.tasks.get(task)) for task in board.protocol.tasks),
            *(_success(row.splits.get(split)) for split in board.protocol.splits),
            _cell(row.any_time, "" if row.any_time is None else percent(row.any_time)),
            _cell(
                sum(failed.values()),
                "<br>".join(f"{count} {who}" for who, count in failed.items()) or "none",
            ),
            _verified(board.verified(row)) if board.verifications else "",
            "</tr>",
        ]
    )


def _verified(counts: tuple[int, int] | None) -> str:
    if counts is None or not counts[1]:
        return _cell(None, "")
    same, of = counts
    return _cell(same / of, f"{same} of {of}", "" if same == of else "bad")


def _breakable(name: str) -> str:
    """Returns a name that may go on in the next line after an underscore."""
    return escape(name).replace("_", "_<wbr>")


def _cell(value: float | None, content: str, kind: str = "") -> str:
    kind = f' class="{kind}"' if kind else ""
    return f'<td{kind} data-value="{"" if value is None else f"{value:.6g}"}">{content}</td>'


def _success(success: Success | None) -> str:
    if success is None or success.rate is None:
        return _cell(None, '<span class="none">not given</span>')
    low, rate, high = (f"{100 * v:.2f}%" for v in (success.low, success.rate, success.high))
    bar = f'<i class="bar" style="--low:{low};--rate:{rate};--high:{high}"></i>'
    between = f"{100 * success.low:.1f} to {100 * success.high:.1f}"
    return _cell(success.rate, f"<b>{percent(success.rate)}</b>{bar}<small>{between}</small>")


# --- Below it -------------------------------------------------------------------------------


def _plots(board: Board) -> Iterator[str]:
    plots = [("Total", [(r.name, r.total) for r in board.rows if r.total])]
    plots += [
        (words(task).capitalize(), [(r.name, r.tasks[task]) for r in board.rows if task in r.tasks])
        for task in board.protocol.tasks
    ]
    plots += [
        (words(s).capitalize(), [(r.name, r.splits[s]) for r in board.rows if s in r.splits])
        for s in board.protocol.splits
    ]
    yield '<section><h2>Plots</h2><div class="plots">'
    for title, rows in plots:
        if rows:
            plot = forest(f"Success, {title.lower()}, by method, with 95% intervals", rows)
            yield f"<figure><figcaption>{escape(title)}</figcaption>{plot}</figure>"
    yield "</div></section>"


def _methods(board: Board) -> Iterator[str]:
    yield "<section><h2>What they are</h2>"
    for number, row in enumerate(board.rows):
        yield f'<article id="method-{number}"><h3>{escape(row.name)}</h3>'
        if clip := board.clips.get(row.name):
            yield _clip(row.name, clip)
        yield '<div class="scroll" tabindex="0"><table><thead><tr><td></td>'
        for split in board.protocol.splits:
            yield f'<th scope="col">{escape(words(split)).capitalize()}</th>'
        yield "</tr></thead><tbody>"
        for task, of_task in row.strata.items():
            cells = "".join(_success(of_task[split]) for split in board.protocol.splits)
            yield f'<tr><th scope="row">{escape(words(task)).capitalize()}</th>{cells}</tr>'
        yield "</tbody></table></div>"
        for told in facts(board, row):
            lines = "".join(
                f"<dt>{escape(name)}</dt><dd>{_told(name, value)}</dd>" for name, value in told
            )
            yield f"<details><summary>{escape(told[0][1])}</summary><dl>{lines}</dl></details>"
        yield "</article>"
    yield "</section>"


def _told(name: str, value: str) -> str:
    return f"<code>{escape(value)}</code>" if name in ("hash", "command") else escape(value)


def _clip(name: str, clip: Clip) -> str:
    what = ", ".join(f"{task}: {words(outcome)}" for task, outcome in clip.outcomes.items())
    source = base64.b64encode(clip.video).decode()
    return (
        f'<figure class="clip"><video controls loop muted playsinline preload="auto" '
        f'width="{clip.width}" height="{clip.height}" aria-label="{escape(name)}" '
        f'src="data:video/mp4;base64,{source}"></video>'
        f"<figcaption>The first scene, whatever came of it. {escape(what)}.</figcaption></figure>"
    )


def _refused(board: Board) -> Iterator[str]:
    if board.findings:
        yield "<section><h2>Refused</h2><ul>"
        for finding in board.findings:
            where, why = escape(finding.folder), escape(finding.what)
            yield f'<li><code>{where}</code> <b class="bad">{finding.kind}</b>: {why}</li>'
        yield "</ul></section>"


def _submitting() -> Iterator[str]:
    yield "<section><h2>How to submit</h2><ol>"
    for what, command in SUBMITTING:
        yield f"<li>{escape(what)}<pre><code>{escape(command)}</code></pre></li>"
    yield "</ol></section>"
