"""Cells, and tables of them as text: the median over seeds, then the lowest and the highest."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Cell:
    """A place in a table, and what stands there.

    Attributes:
        row: Its name, such as an architecture's or an alpha.
        column: Its name, such as a method's.
        seed: Of everything.
        value: Numbers by name, such as "barrier" and "accuracy".
    """

    row: str
    column: str
    seed: int
    value: dict[str, float]


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Such as "0.019 [0.012 0.03]"; one value alone without brackets, none as "-"."""
    if not values:
        return "-"
    middle = f"{median(values):.{digits}g}"
    if len(values) == 1:
        return middle
    return f"{middle} [{min(values):.{digits}g} {max(values):.{digits}g}]"


def by_column(cells: Sequence[Cell], quantity: str, title: str) -> str:
    """One quantity: a row for each of the cells' rows, a column for each of their columns."""
    columns = list(dict.fromkeys(cell.column for cell in cells))
    return _table(
        title,
        columns,
        {
            row: [spread(_values(cells, quantity, row=row, column=column)) for column in columns]
            for row in dict.fromkeys(cell.row for cell in cells)
        },
    )


def by_quantity(cells: Sequence[Cell], title: str) -> str:
    """Every quantity of cells of one column: a column for each quantity."""
    quantities = list(dict.fromkeys(name for cell in cells for name in cell.value))
    return _table(
        title,
        quantities,
        {
            row: [spread(_values(cells, quantity, row=row)) for quantity in quantities]
            for row in dict.fromkeys(cell.row for cell in cells)
        },
    )


def _values(cells: Sequence[Cell], quantity: str, **where: str) -> list[float]:
    return [
        cell.value[quantity]
        for cell in cells
        if all(getattr(cell, name) == value for name, value in where.items())
    ]


def _table(title: str, columns: Sequence[str], rows: dict[str, list[str]]) -> str:
    lines = [[title, *columns], *([row, *values] for row, values in rows.items())]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns) + 1)]
    return "\n".join(
        "  ".join(
            text.ljust(width) if at == 0 else text.rjust(width)
            for at, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
