"""Tables of results: the median over seeds, then the lowest and the highest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True)
class TableEntry:
    """Result of one seed in a table.

    Attributes:
        row: Name of the row, such as that of a method.
        column: Name of the column, such as that of an architecture.
        seed: The seed.
        value: Numbers by name, such as "barrier" and "accuracy".
        settings: The numbers by which columns differ, by name.
        curves: Values at evenly spaced points from 0 to 1, by measure.
    """

    row: str
    column: str
    seed: int
    value: Mapping[str, float]
    settings: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes:
        title: Its title, which stands above the names of the rows.
        columns: Names of the columns.
        rows: Texts by the name of the row.
    """

    title: str
    columns: Sequence[str]
    rows: Mapping[str, Sequence[str]]

    def as_text(self) -> str:
        """Returns the table with aligned columns."""
        lines = self._lines()
        widths = [max(map(len, texts)) for texts in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                [line[0].ljust(widths[0])]
                + [text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True)]
            ).rstrip()
            for line in lines
        )

    def as_markdown(self) -> str:
        """Returns the table as Markdown."""
        head, *lines = self._lines()
        lines = [head, ["---"] * len(head), *([f"`{line[0]}`", *line[1:]] for line in lines)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def _lines(self) -> list[list[str]]:
        return [[self.title, *self.columns], *([row, *texts] for row, texts in self.rows.items())]


def format_spread(values: Sequence[float], digits: int = 3) -> str:
    """Returns such as "0.019 [0.012 0.03]"; a single value without brackets, "-" for none."""
    if not values:
        return "-"
    middle = f"{median(values):.{digits}g}"
    if len(values) == 1:
        return middle
    return f"{middle} [{min(values):.{digits}g} {max(values):.{digits}g}]"


def table_of_quantity(entries: Sequence[TableEntry], quantity: str, title: str) -> Table:
    """Returns a table of one quantity, with the rows and columns of the entries that have it."""
    entries = [entry for entry in entries if quantity in entry.value]
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
    return Table(title, columns, rows)


def table_by_quantity(entries: Sequence[TableEntry], title: str) -> Table:
    """Returns a table of all quantities of entries of one column, with a column for each."""
    quantities = list(dict.fromkeys(name for entry in entries for name in entry.value))
    rows = {
        row: [
            format_spread([entry.value[quantity] for entry in entries if entry.row == row])
            for quantity in quantities
        ]
        for row in dict.fromkeys(entry.row for entry in entries)
    }
    return Table(title, quantities, rows)
