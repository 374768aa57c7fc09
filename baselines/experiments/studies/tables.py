"""Tables of results as text: the median over seeds, then the lowest and the highest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class TableEntry:
    """Result of one seed in a table.

    Attributes:
        row: Name of the row, such as that of an architecture.
        column: Name of the column, such as that of a method.
        seed: The seed.
        value: Numbers by name, such as "barrier" and "accuracy".
    """

    row: str
    column: str
    seed: int
    value: Mapping[str, float]


def format_spread(values: Sequence[float], digits: int = 3) -> str:
    """Returns such as "0.019 [0.012 0.03]"; a single value without brackets, "-" for none."""
    if not values:
        return "-"
    middle = f"{median(values):.{digits}g}"
    if len(values) == 1:
        return middle
    return f"{middle} [{min(values):.{digits}g} {max(values):.{digits}g}]"


def table_by_column(entries: Sequence[TableEntry], quantity: str, title: str) -> str:
    """Returns a table of one quantity, with the rows and columns of the entries."""
    columns = list(dict.fromkeys(entry.column for entry in entries))
    rows = {
        row: [
            format_spread(
                [
                    entry.value[quantity]
                    for entry in entries
                    if (entry.row, entry.column) == (row, column)
                ]
            )
            for column in columns
        ]
        for row in dict.fromkeys(entry.row for entry in entries)
    }
    return _table(title, columns, rows)


def table_by_quantity(entries: Sequence[TableEntry], title: str) -> str:
    """Returns a table of all quantities of entries of one column, with a column for each."""
    quantities = list(dict.fromkeys(name for entry in entries for name in entry.value))
    rows = {
        row: [
            format_spread([entry.value[quantity] for entry in entries if entry.row == row])
            for quantity in quantities
        ]
        for row in dict.fromkeys(entry.row for entry in entries)
    }
    return _table(title, quantities, rows)


def _table(title: str, columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    lines = [[title, *columns], *([row, *values] for row, values in rows.items())]
    widths = [max(map(len, texts)) for texts in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            [line[0].ljust(widths[0])]
            + [text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True)]
        ).rstrip()
        for line in lines
    )
