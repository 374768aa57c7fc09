"""Files of a room of the package in the order in which they are read, with their lines."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

from task_facts import table

PACKAGE = Path(__file__).resolve().parents[2] / "fleet_tools"


def in_order(room: str) -> list[Path]:
    """Returns the files of a room, each after those that it imports when it is imported."""
    files = {file.stem: file for file in sorted((PACKAGE / room).glob("[!_]*.py"))}
    imported = re.compile(rf"^from fleet_tools\.{room}\.(\w+) import", re.MULTILINE)
    graph = {name: imported.findall(file.read_text()) for name, file in files.items()}
    return [files[name] for name in TopologicalSorter(graph).static_order()]


def lines(file: Path) -> int:
    """Returns the number of lines of a file."""
    return len(file.read_text().splitlines())


def room_table(room: str) -> str:
    """Returns the files of a room in order, as a table: name, lines, first line of the docstring.

    Args:
        room: Name of the room, such as "sim".
    """
    files = in_order(room)
    rows = [(f"`{f.name}`", str(lines(f)), _title(f)) for f in files]
    total = f"{sum(map(lines, files)):,}"
    return table(("file", "lines", "what it is"), [*rows, (f"{len(files)} files", total, "")])


def _title(file: Path) -> str:
    """Returns the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]
