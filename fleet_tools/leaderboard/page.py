"""The leaderboard as one HTML file, which loads no other files."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files

from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.leaderboard.board import (
    Board,
    Clip,
    RankedLevel,
    Ranking,
    Reruns,
    across_levels,
    reruns,
)
from fleet_tools.leaderboard.facts import facts
from fleet_tools.leaderboard.html_parts import (
    cell,
    figure,
    forest_plot,
    page_head,
    success_cell,
)
from fleet_tools.leaderboard.standings import Standing
from fleet_tools.leaderboard.wording import (
    ACROSS,
    HANDLING_NOTE,
    HEADINGS,
    PREVIEW,
    READING,
    SUBMITTING,
    SUBMITTING_PAGE,
    across_columns,
    column_names,
    error_counts,
    handling_cells,
    handling_columns,
    has_handling,
    has_reruns,
    heading,
    level_text,
    notes,
    part_text,
    percent,
    policies_text,
    preview_columns,
    preview_row,
    ranking_notes,
    readable,
    reruns_text,
)


def as_html(board: Board) -> str:
    """Returns the page; the same board gives the same text."""
    script = (files("fleet_tools.leaderboard") / "page.js").read_text("utf-8")
    return "\n".join(
        [
            *page_head("Fleet-Tools leaderboard"),
            *_header(board),
            "<main>",
            *(line for part in _OF_METHODS if board.standings for line in part(board)),
            *_previews(board),
            *_rejections(board),
            *(_submitting() if board.takes_submissions else ()),
            "</main>",
            f"<script>\n{script}</script>",
            "</body></html>",
            "",
        ]
    )


def _header(board: Board) -> Iterator[str]:
    yield "<header><h1>Fleet-Tools leaderboard</h1>"
    if len(board.levels) == 1:
        yield f"{_level(board.levels[0])}</header>"
        return
    yield "<p>Levels: "
    yield ", ".join(
        f'<a href="#level-{number}">{escape(level.protocol.level_name)}</a>'
        for number, level in enumerate(board.levels)
    )
    yield "</p></header>"


def _level(level: RankedLevel) -> str:
    return f"<p>Protocol {escape(level_text(level))} <code>{escape(level.digest)}</code></p>"


# --- Tables ---------------------------------------------------------------------------------


def _across(board: Board) -> Iterator[str]:
    """Yields the table of all levels, where there are several."""
    if len(board.levels) == 1:
        return
    yield '<section><h2 id="across">Levels</h2>'
    yield f'<p class="note">{escape(ACROSS)}</p>'
    yield '<div class="scroll" tabindex="0" role="region" aria-labelledby="across">'
    yield f"<table><thead><tr>{_head(across_columns(board))}</tr></thead><tbody>"
    for row in across_levels(board):
        name = escape(row.name).replace("_", "_<wbr>")
        cells = f"<td>{escape(HEADINGS[row.track])}</td>"
        cells += f'<th scope="row">{name}</th><td>{escape(policies_text(row.some))}</td>'
        for standing in row.standings:
            if standing is not None and standing.overall is None:
                cells += f"<td>{escape(part_text(standing))}</td>"
            else:
                cells += success_cell(standing and standing.overall and standing.overall.total)
        yield f"<tr>{cells}</tr>"
    yield "</tbody></table></div></section>"


def _methods(board: Board) -> Iterator[str]:
    several = len(board.levels) > 1
    numbers = {id(standing): k for k, standing in enumerate(board.standings)}
    for place, level in enumerate(board.levels):
        title = f"Level: {level.protocol.level_name}" if several else "Methods"
        yield f'<section aria-labelledby="level-{place}">'
        yield f'<h2 id="level-{place}">{escape(title)}</h2>'
        yield _level(level) if several else ""
        rankings = board.rankings_of(level)
        for ranking in rankings:
            anchor = f"{ranking.kind}-{ranking.sensors}-{place}"
            yield f'<h3 id="{anchor}">{escape(heading(ranking))}</h3>'
            yield f"<p>{escape(ranking_notes(ranking))}</p>"
            links = [
                f'<a href="#method-{numbers[id(each)]}">{_name(each)}</a>'
                for each in ranking.standings
            ]
            yield from _table(ranking, anchor, links)
            yield from _handling(ranking) if has_handling(ranking) else ()
        yield "" if rankings else "<p>No results yet.</p>"
        yield "</section>"
    yield "<section><h2>How to read it</h2>"
    yield from (f'<p class="note">{escape(paragraph)}</p>' for paragraph in READING)
    yield "</section>"


def _table(ranking: Ranking, heading: str, names: Sequence[str]) -> Iterator[str]:
    """Yields the table of a ranking.

    Args:
        ranking: The ranking.
        heading: Identifier of its heading.
        names: Names of its methods, as HTML.
    """
    tasks, splits = ranking.protocol.tasks, ranking.protocol.splits
    yield f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{heading}">'
    yield '<table class="sortable"><thead>'
    yield (
        '<tr class="groups"><td colspan="4"></td>'
        f'<th scope="colgroup" colspan="{len(tasks)}">Tools</th>'
        f'<th scope="colgroup" colspan="{len(splits)}">Splits</th>'
        f'<td colspan="{3 + has_reruns(ranking)}"></td></tr><tr>'
    )
    for column, name in enumerate(column_names(ranking)):
        sort = ' aria-sort="ascending"' if name == "rank" else ""
        kind = ' class="method"' if name == "method" else ""
        yield (
            f'<th scope="col"{kind}{sort}>'
            f'<button type="button" data-column="{column}">{_label(name)}</button></th>'
        )
    yield "</tr></thead><tbody>"
    for standing, name in zip(ranking.standings, names, strict=True):
        yield _row(ranking, standing, name)
    yield "</tbody></table></div>"


def _handling(ranking: Ranking) -> Iterator[str]:
    """Yields the table of how the methods of a ranking handle the tasks."""
    yield f'<p class="note">{escape(HANDLING_NOTE)}</p>'
    yield '<div class="scroll" tabindex="0" role="region" aria-label="Handling"><table>'
    yield f"<thead><tr>{_head(handling_columns())}</tr></thead><tbody>"
    for standing in ranking.standings:
        cells = "".join(cell(*each) for each in handling_cells(standing))
        total = success_cell(standing.overall and standing.overall.total)
        yield f'<tr><th scope="row" class="method">{_name(standing)}</th>{total}{cells}</tr>'
    yield "</tbody></table></div>"


def _row(ranking: Ranking, standing: Standing, name: str) -> str:
    overall = standing.overall
    rank, once = (overall.rank, overall.success_once) if overall else (None, None)
    small = "".join(f"<small>{escape(note)}</small>" for note in notes(standing))
    errors, splits = error_counts(standing), overall.splits if overall else {}
    letters = ranking.letters.get(standing.label, "")
    return "".join(
        [
            "<tr>",
            cell(rank, "" if rank is None else str(rank), "rank"),
            f'<th scope="row" class="method" data-value="{escape(standing.label)}">'
            f"{name}{small}</th>",
            success_cell(overall.total if overall else None),
            f'<td class="letters" data-value="{letters}">{letters}</td>',
            *(success_cell(standing.tasks.get(task)) for task in ranking.protocol.tasks),
            *(success_cell(splits.get(split)) for split in ranking.protocol.splits),
            f'<td data-value="{standing.policies}">{escape(policies_text(standing))}</td>',
            cell(once, "" if once is None else percent(once)),
            cell(
                sum(errors.values()),
                "<br>".join(f"{count} {origin}" for origin, count in errors.items()) or "none",
            ),
            _verified(reruns(standing)) if has_reruns(ranking) else "",
            "</tr>",
        ]
    )


def _verified(again: Reruns | None) -> str:
    if again is None or not again.episodes:
        return cell(None, "")
    share = again.same_outcome / again.episodes
    return cell(share, escape(reruns_text(again)), "" if share == 1 else "bad")


def _name(standing: Standing) -> str:
    """Returns a method's name, which may be broken after each underscore."""
    return escape(standing.label).replace("_", "_<wbr>")


def _label(name: str) -> str:
    name = readable(name)
    return escape(name[:1].upper() + name[1:])


def _head(names: Iterable[str]) -> str:
    return "".join(f'<th scope="col">{_label(name)}</th>' for name in names)


# --- Details --------------------------------------------------------------------------------


def _plots(board: Board) -> Iterator[str]:
    yield "<section><h2>Plots</h2>"
    for level in board.levels:
        standings = [each for ranking in board.rankings_of(level) for each in ranking.standings]
        if standings and len(board.levels) > 1:
            yield f"<h3>Level: {escape(level.protocol.level_name)}</h3>"
        if standings:
            yield f'<div class="plots">{"".join(_figures(level.protocol, standings))}</div>'
    yield "</section>"


def _figures(protocol: Protocol, standings: Sequence[Standing]) -> Iterator[str]:
    overall = [(each.label, each.overall) for each in standings if each.overall]
    plots = [("total", [(name, numbers.total) for name, numbers in overall])]
    plots += [
        (task, [(each.label, each.tasks[task]) for each in standings if task in each.tasks])
        for task in protocol.tasks
    ]
    plots += [
        (split, [(name, numbers.splits[split]) for name, numbers in overall])
        for split in protocol.splits
    ]
    for name, rows in plots:
        if rows:
            title = f"Success, {readable(name).lower()}, by method, with 95% intervals"
            caption = f"<figcaption>{_label(name)}</figcaption>"
            yield f"<figure>{caption}{forest_plot(title, rows)}</figure>"


def _details(board: Board) -> Iterator[str]:
    yield "<section><h2>Details of the methods</h2>"
    for number, standing in enumerate(board.standings):
        splits, level = standing.protocol.splits, standing.protocol.level
        title = standing.label + (f", {level}" if level else "")
        yield f'<article id="method-{number}"><h3>{escape(title)}</h3>'
        if standing.description:
            yield f"<p>{escape(standing.description)}</p>"
        clip = board.clips.get(standing.label)
        if clip and standing.protocol == board.protocol:
            yield _clip(standing.label, clip)
        yield '<div class="scroll" tabindex="0"><table>'
        yield f"<thead><tr><td></td>{_head(splits)}</tr></thead><tbody>"
        for task, of_task in standing.strata.items():
            cells = "".join(success_cell(of_task[split]) for split in splits)
            yield f'<tr><th scope="row">{_label(task)}</th>{cells}</tr>'
        yield "</tbody></table></div>"
        for of_result in facts(standing):
            lines = "".join(
                f"<dt>{escape(name)}</dt><dd>{_fact(name, value)}</dd>" for name, value in of_result
            )
            folder = of_result[0][1]
            yield f"<details><summary>{escape(folder)}</summary><dl>{lines}</dl></details>"
        yield "</article>"
    yield "</section>"


def _fact(name: str, value: str) -> str:
    return f"<code>{escape(value)}</code>" if name in ("hash", "command") else escape(value)


def _clip(name: str, clip: Clip) -> str:
    outcomes = ", ".join(f"{task}: {readable(outcome)}" for task, outcome in clip.outcomes.items())
    return figure(name, clip, f"The first scene of each task, whatever its outcome. {outcomes}.")


def _previews(board: Board) -> Iterator[str]:
    if board.previews:
        yield f'<section><h2 id="preview">Preview</h2><p class="note">{escape(PREVIEW)}</p>'
        yield '<div class="scroll" tabindex="0" role="region" aria-labelledby="preview">'
        head = _head(preview_columns(board))
        yield f'<table class="text"><thead><tr>{head}</tr></thead><tbody>'
        for submission in board.previews:
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in preview_row(board, submission))
            yield f"<tr>{cells}</tr>"
        yield "</tbody></table></div></section>"


def _rejections(board: Board) -> Iterator[str]:
    if board.rejections:
        yield "<section><h2>Rejected</h2><ul>"
        for rejection in board.rejections:
            folder, reason = escape(rejection.folder), escape(rejection.reason)
            yield f'<li><code>{folder}</code> <b class="bad">{rejection.kind}</b>: {reason}</li>'
        yield "</ul></section>"


def _submitting() -> Iterator[str]:
    yield "<section><h2>How to submit</h2>"
    yield f"<p>More is in <code>{SUBMITTING_PAGE}</code> of the repository. In short:</p><ol>"
    for step, commands in SUBMITTING:
        lines = escape("\n".join(commands))
        yield f"<li>{escape(step)}<pre><code>{lines}</code></pre></li>"
    yield "</ol></section>"


_OF_METHODS = (_across, _methods, _plots, _details)
"""Sections that a page without methods, such as one of previews alone, does not have."""
