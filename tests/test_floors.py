"""Each room imports from its own floor and from those below; programs are above all rooms."""

import ast
from pathlib import Path

import pytest
from support.processes import ROOT

from fleet_tools.__main__ import PROGRAMS

PACKAGE = ROOT / "fleet_tools"

FLOORS = (
    "config",
    "utils",
    "storage",
    "parallel",
    "robot",
    "sim",
    "assets",
    "perception",
    "envs",
    "policies",
    "rollouts",
    "dataset",
    "evaluation",
    "leaderboard",
    "experts",
    "baselines",
    "studio",
)
"""Rooms from the lowest floor to the highest."""

GROUND = ("errors", "registration")
"""Modules of the top level that rooms may import, beside the package itself and its version."""


def modules():
    """Yields the file, room and module name of every module in a room that is no program."""
    for room in FLOORS:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            names = path.relative_to(PACKAGE).with_suffix("").parts
            if names[-1] != "__main__" and not is_program(path):
                yield path, room, ".".join(("fleet_tools", *names))


def is_program(path: Path) -> bool:
    """Returns whether a module is a program, `python -m` of which does the work."""
    return 'if __name__ == "__main__":' in path.read_text()


def imports(path: Path):
    """Yields the modules of the package that a module imports, also within functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_every_room_has_a_floor():
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms - {"task_configs"} == set(FLOORS)


@pytest.fixture(name="by_room", scope="module")
def _by_room():
    """All modules by their rooms, read once."""
    found = {room: [] for room in FLOORS}
    for path, room, module in modules():
        found[room].append((path, module))
    return found


@pytest.mark.parametrize("room", FLOORS)
def test_no_import_runs_upwards(by_room, room):
    upward = []
    for path, module in by_room[room]:
        for imported in imports(path):
            package, _, rest = imported.partition(".")
            target = rest.partition(".")[0]
            if package != "fleet_tools" or target in ("", *GROUND):
                continue
            above = target not in FLOORS or FLOORS.index(target) > FLOORS.index(room)
            if above and (PACKAGE / target).exists() | (PACKAGE / f"{target}.py").exists():
                upward.append(f"{module} imports {imported}")
    assert upward == []


def test_the_top_level_holds_the_public_face_and_the_programs():
    files = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    face = {"__init__.py", "__init__.pyi", "__main__.py", "errors.py", "py.typed"}
    programs = {module for module, _ in PROGRAMS.values() if "." not in module}
    # A server's program, the environments, and the library of merging by itself.
    others = {"blender.py", "registration.py", "merging.py"}
    assert files - others == face | {f"{name}.py" for name in programs}
