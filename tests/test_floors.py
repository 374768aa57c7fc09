"""Each room imports from its own floor and from those below; programs are above all rooms."""

import ast
from pathlib import Path

import pytest
from support.processes import ROOT

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


@pytest.mark.parametrize("room", FLOORS)
def test_no_import_runs_upwards(room):
    upward = []
    for path, its_room, module in modules():
        if its_room != room:
            continue
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
    face = {
        "__init__.py",
        "__init__.pyi",
        "__main__.py",
        "errors.py",
        "py.typed",
        "registration.py",
    }
    programs = {
        *("blender", "collect", "doctor", "evaluate", "label", "new_task", "photograph"),
        *("replay", "serve", "teleop", "view"),
    }
    assert files == face | {f"{name}.py" for name in programs}
