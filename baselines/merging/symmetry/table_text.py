"""Tables as text that a person can edit: one line for each parameter, its name and its axes.

# comments and empty lines are ignored
0.weight  h _obs
0.bias    h
steps     .             # a scalar
"""

from collections.abc import Mapping, Sequence

from fleet_tools.baselines.merging.errors import AxisSyntaxError
from fleet_tools.baselines.merging.symmetry.table import Symmetry

_SCALAR = "."


def format_table(symmetry: Symmetry, notes: Mapping[str, Sequence[str]] | None = None) -> str:
    """Returns a table as text, from which `parse_table` makes an equal one.

    Args:
        symmetry: The table.
        notes: Comments on parameters, such as `Derivation.notes`.
    """
    table = symmetry.table()
    width = max(map(len, table), default=0)
    lines = []
    for name, axes in table.items():
        comment = ", ".join((notes or {}).get(name, ()))
        line = f"{name:<{width}}  {axes or _SCALAR}"
        lines.append(f"{line}  # {comment}" if comment else line)
    return "".join(f"{line}\n" for line in lines)


def parse_table(text: str) -> Symmetry:
    """Reads a table from text.

    Raises:
        AxisSyntaxError: A line has no axes, a parameter is given twice, or axes cannot be read; the
            message names the line or the parameter.
    """
    table: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        name, _, axes = line.partition("#")[0].strip().partition(" ")
        if not name:
            continue
        if not axes.strip():
            raise AxisSyntaxError(
                f"Line {number}, {line.strip()!r}, has no axes. Write the parameter's name, spaces "
                f"and its axes, such as '0.weight  h _in', or {_SCALAR!r} for those of a scalar."
            )
        if name in table:
            raise AxisSyntaxError(
                f"Line {number} gives {name} again, as {axes.strip()!r}; before it was "
                f"{table[name]!r}. Leave one of them out."
            )
        table[name] = "" if axes.strip() == _SCALAR else axes.strip()
    return Symmetry.of(table)
