"""Output of benchmarks while they run, and tables in Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fleet_tools.utils import cli


def print_now(options: cli.Options, text: str) -> None:
    """Prints text at once, unless the options ask for JSON or for no output.

    Args:
        options: Options of the program.
        text: The text.
    """
    if not (options.quiet or options.json_output):
        print(text, flush=True)


def table_head(columns: Sequence[str]) -> str:
    """Returns the first two lines of a table."""
    return f"{table_row(columns)}\n|{'---|' * len(columns)}"


def table_row(cells: Iterable[str]) -> str:
    """Returns a line of a table."""
    return f"| {' | '.join(cells)} |"


def report_rows(
    options: cli.Options, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Prints a table, each row as soon as it is measured; or all of them as JSON at the end.

    Args:
        options: Options of the program.
        columns: Names of the columns.
        rows: Cells by column; None shows nothing.

    Returns:
        The rows.
    """
    print_now(options, table_head(columns))
    measured = []
    for row in rows:
        measured.append(row)
        print_now(options, table_row(["" if each is None else str(each) for each in row.values()]))
    if options.json_output:
        options.report({"rows": measured}, str)
    return measured


AGREEMENT_COLUMNS = ("episodes", "same bits", "same outcome", "within", "largest distance")


def agreement_cells(found: Mapping[str, Any]) -> list[str]:
    """Returns the cells of `AGREEMENT_COLUMNS`.

    Args:
        found: See `fleet_tools.rollouts.agreement.counts`.
    """
    farthest = found["largest_distance_m"]
    return [
        *(str(found[name]) for name in ("episodes", "identical", "same_outcome")),
        f"{found['within']} ({found['within_m']:g} m)",
        "unknown" if farthest is None else f"{farthest:.2g} m",
    ]
