"""The files of a supervised study: results as JSON, and the page and the figures made from them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fleet_tools.baselines.experiments.studies.figures import save_fleet_figure, save_pair_figure
from fleet_tools.baselines.experiments.studies.fleets import CONTROLS
from fleet_tools.baselines.experiments.studies.tables import Table, TableEntry, table_of_quantity
from fleet_tools.storage.atomic_files import atomic_write


def tables_of(title: str, entries: Sequence[TableEntry]) -> list[Table]:
    """Returns the tables of a study.

    Args:
        title: What was learned.
        entries: Those of fleets have settings, those of pairs have none.
    """
    pairs, fleets = _pairs(entries), _fleets(entries)
    tables = []
    if pairs:
        tables.append(table_of_quantity(pairs, "barrier", f"{title}: barrier of pairs"))
        tables.append(table_of_quantity(_with_single(pairs), "accuracy", f"{title}: accuracy"))
    if fleets:
        title = f"{title}: accuracy of fleets"
        tables.append(table_of_quantity(_with_single(fleets), "accuracy", title))
    return [table for table in tables if table.rows]


def write_results(results: Mapping[str, Any], page: Path) -> None:
    """Writes all files of a study, with the page's name and other suffixes.

    Args:
        results: In "title" what was learned, in "command" the command, in "sizes" what it was
            computed from, in words, and in "entries" the table's entries.
        page: File of the page.
    """
    page.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(page.with_suffix(".json")) as aside:
        aside.write_text(json.dumps(results, indent=1) + "\n")
    write_page(results, page)


def write_page(results: Mapping[str, Any], page: Path) -> None:
    """Writes the page and the figures of a study.

    Args:
        results: See `write_results`.
        page: File of the page.
    """
    entries = _entries(results)
    for name, kind in _figures(entries, page.stem).items():
        kind(entries, page.with_name(name))
    with atomic_write(page) as aside:
        aside.write_text(markdown_page(results, page.stem), encoding="utf-8")


def markdown_page(results: Mapping[str, Any], stem: str) -> str:
    """Returns the page of a study.

    Args:
        results: See `write_results`.
        stem: File name of the page, without its suffix.
    """
    entries = _entries(results)
    parts = [
        f"# {stem}",
        f"```bash\n{results['command']}\n```",
        results["sizes"],
        "<!-- tables -->",
        *(table.as_markdown() for table in tables_of(results["title"], entries)),
        "<!-- figures -->",
        *(f"![{results['title']}]({quote(name)})" for name in _figures(entries, stem)),
    ]
    return "\n\n".join(parts) + "\n"


def _entries(results: Mapping[str, Any]) -> list[TableEntry]:
    return [TableEntry(**entry) for entry in results["entries"]]


def _figures(
    entries: Sequence[TableEntry], stem: str
) -> dict[str, Callable[[Sequence[TableEntry], Path], None]]:
    """Returns the functions that save the figures, by file name."""
    found = {}
    if any(entry.curves for entry in entries):
        found[f"{stem}_curves.png"] = save_pair_figure
    if _fleets(entries):
        found[f"{stem}.png"] = save_fleet_figure
    return found


def _pairs(entries: Sequence[TableEntry]) -> list[TableEntry]:
    return [entry for entry in entries if not entry.settings]


def _fleets(entries: Sequence[TableEntry]) -> list[TableEntry]:
    return [entry for entry in entries if entry.settings]


def _with_single(entries: Sequence[TableEntry]) -> list[TableEntry]:
    """Adds a row with the mean accuracy of the networks before they were merged."""
    own = next((entry.row for entry in entries if entry.row not in CONTROLS), None)
    return [
        *entries,
        *(
            replace(entry, row="one alone", value={"accuracy": entry.value["single"]})
            for entry in entries
            if entry.row == own
        ),
    ]
