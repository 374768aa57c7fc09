"""Walks the paths of a newcomer: `python benchmarks/newcomer_paths.py --wheel FILE.whl`.

Each path is a page of the documentation. Its blocks run unchanged, in an empty folder, by the
Python
of an environment with only the wheel and the page's extras. The output, in Markdown, is the time in
minutes, beside the stated one.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from scaffold import main_of, print_now, table_head, table_row
from tyro.conf import UseAppendAction

from fleet_tools.errors import ConfigError, require_name
from fleet_tools.utils import cli
from fleet_tools.utils.machine import machine_name

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / each) for each in ("tests", "docs/_extensions")]  # which read the pages

from support.pages import Block, blocks  # noqa: E402

TESTS = ("run", "slow", "cell")
COLUMNS = ("path", "minutes", "stated", "of processor", "of installation", "result")


def _tested(block: Block) -> bool:
    return block.test in TESTS


@dataclass(frozen=True)
class Route:
    """A newcomer's path.

    Attributes:
        page: The page within docs with the blocks to run.
        minutes: Its time limit in minutes, without the installation.
        extras: Extras of the wheel in the page.
        taken: The blocks of Python and bash to run; blocks that install never run.
        smaller: Replacements in them, since a newcomer tries less first.
        file: Name of the file for the page's Python; it is run if None.
        copied: Folders of the checkout that the page's commands read.
        after: More code, for instructions in words.
    """

    page: str
    minutes: float
    extras: tuple[str, ...] = ()
    taken: Callable[[Block], bool] = _tested
    smaller: tuple[tuple[str, str], ...] = ()
    file: str | None = None
    copied: tuple[str, ...] = ()
    after: str = ""


_CLICKS = """
import runpy
from pathlib import Path
sys.path.insert(0, "tests")
person = runpy.run_path("tests/studio/labelling/test_page.py")
Path("clicked").mkdir()
person["test_what_is_clicked_is_what_is_labelled_and_written"](Path("clicked"))
"""
_MACHINES = """
import json
from pathlib import Path
sys.path.insert(0, "tests")
from support.namespaces import ray_machines
fleet = Path("examples/fleet/hammer.yaml").read_text()
fleet = fleet.replace("data/hammer", str(Path("data/hammer").absolute()))
Path("fleet.yaml").write_text(fleet.replace("rollouts: 20", "rollouts: 1"))  # these change no bit
with ray_machines(2, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="a" * 64) as machines:
    where = ["--ray-address", machines[0].address, "--output"]
    program = [sys.executable, "-m", "fleet_tools"]
    for command in (
        ["collect", "--tool", "hammer", "--episodes", "20", *where, "data/two"],
        ["fleet", "fleet.yaml", *where, "runs/two"],
    ):
        with machines[0].running("env", "-C", str(Path.cwd()), *program, *command) as process:
            assert process.wait() == 0, process.stderr.read()
reports = [json.loads(Path(f"runs/{each}/report.json").read_text()) for each in ("fleet", "two")]
alone, two = ([each["loss"] for each in report["curve"]] for report in reports)
assert alone == two, "two machines give other bits than one"
"""

PATHS = {
    "first episode": Route("getting_started/first_episode.md", 2, ("video",)),
    "own task": Route(
        "tutorials/own_task.md",
        10,
        ("learning",),
        smaller=(("--epochs 80", "--epochs 20"), ("--scenes 5", "--scenes 1")),
        copied=("examples",),
    ),
    "own mesh, by options and by clicks": Route(
        "tutorials/own_mesh.md", 5, ("browser", "import"), copied=("tests",), after=_CLICKS
    ),
    "own policy": Route("tutorials/own_policy.md", 5, copied=("examples",)),
    "own merge": Route(
        "tutorials/own_models.md",
        2,
        ("learning",),
        taken=lambda block: _tested(block) and block.language == "python",
        copied=("examples",),
    ),
    "a submission": Route(
        "benchmark/submitting.md",
        5,
        taken=lambda block: block.language == "python" or "--scenes 2" in block.code,
        file="my_module.py",
    ),
    "a fleet on two machines": Route(
        "tutorials/fleets.md",
        10,
        ("learning",),
        taken=lambda block: _tested(block) and "--reference" not in block.code,
        smaller=(("--episodes 500", "--episodes 40"),),
        copied=("examples", "tests"),
        after=_MACHINES,
    ),
    "reinforcement learning": Route(
        "tutorials/reinforcement_learning.md",
        10,
        ("examples",),
        taken=lambda block: "reinforcement_learning.sac" in block.code,
        smaller=(
            ("learn --tool hammer", "learn --tool hammer --steps 2000 --every 1000 --scenes 5"),
            ("--name sac --tool hammer", "--name sac --tool hammer --scenes 1"),
        ),
        copied=("examples",),
    ),
}
"""Paths by name; the first tries are the ones of the pages."""

_TOOLS = ("pytest", "playwright", "psutil")
"""Libraries for clicks and namespaces, beside the newcomer's."""


class NewcomerOptions(cli.Options):
    """Walks the paths of a newcomer, each in an empty folder, and measures their times.

    Exit codes:
    0: every path was walked within the stated minutes.
    1: one failed or took longer.
    """

    wheel: Path
    """The package as a wheel."""
    path: Annotated[tuple[str, ...], UseAppendAction] = ()
    """Name of a path; may be repeated (default: all)."""
    constraints: Path = Path("constraints.txt")
    """Versions of packages."""
    python: str = sys.executable
    """Python of the new environments."""
    environment: Path | None = None
    """An environment that has the wheel and all extras already, in place of new ones."""


@dataclass(frozen=True)
class Walk:
    """Result of a path.

    Attributes:
        name: Name of the path.
        minutes: Minutes of the page's blocks.
        stated: Stated minutes.
        used: Minutes of processor, without Ray, since its processes outlive the path.
        install: Minutes of the installation; None if nothing was installed.
        problem: The end of the output, if it failed.
    """

    name: str
    minutes: float
    stated: float
    used: float
    install: float | None
    problem: str = ""

    @property
    def row(self) -> list[str]:
        """Cells of `COLUMNS`."""
        result = "failed" if self.problem else "ok" if self.minutes <= self.stated else "too long"
        install = "" if self.install is None else f"{self.install:.1f}"
        times = (f"{self.minutes:.1f}", f"{self.stated:g}", f"{self.used:.1f}", install)
        return [self.name, *times, result]


def _walk_all(options: NewcomerOptions) -> int:
    if not options.wheel.is_file():
        raise ConfigError(f"There is no wheel {options.wheel}. Make it by `pip wheel --no-deps .`.")
    names = options.path or tuple(PATHS)
    for name in names:
        require_name("path", name, PATHS)
    walks: list[Walk] = []
    loads: list[float] = []
    print_now(options, table_head(COLUMNS))
    with tempfile.TemporaryDirectory(prefix="newcomer-") as scratch:
        for number, name in enumerate(names):
            loads.append(os.getloadavg()[0])
            walks.append(walk(name, Path(scratch, str(number)), options))
            print_now(options, table_row(walks[-1].row))
            if walks[-1].problem:
                print(walks[-1].problem, file=sys.stderr, flush=True)
    rows = [dict(zip(COLUMNS, each.row, strict=True)) for each in walks]
    loads.append(os.getloadavg()[0])
    summary = {"machine": machine_name(), "load": [min(loads), max(loads)], "paths": rows}
    where = f"On {machine_name()}, with a load from {min(loads):.1f} to {max(loads):.1f}."
    options.report(summary, lambda: f"\n{where}")
    return cli.OK if all(each.row[-1] == "ok" for each in walks) else cli.FAILED


def walk(name: str, folder: Path, options: NewcomerOptions) -> Walk:
    """Walks a path in a new folder."""
    path = PATHS[name]
    work = folder / "work"
    work.mkdir(parents=True)
    python, install = options.environment, None
    if python is None:
        started = time.monotonic()
        python = folder / "environment"
        problem = _install(python, path, options)
        install = (time.monotonic() - started) / 60
        if problem:
            return Walk(name, 0.0, path.minutes, 0.0, install, problem)
    for each in path.copied:
        shutil.copytree(ROOT / each, work / each, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "path.py"
    file.write_text(text(path), encoding="utf-8")
    started, used = time.monotonic(), _processor_minutes()
    done = _run([str(python.absolute() / "bin" / "python"), str(file)], work)
    minutes = (time.monotonic() - started) / 60
    return Walk(name, minutes, path.minutes, _processor_minutes() - used, install, done)


def _processor_minutes() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) / 60


def text(path: Route) -> str:
    """Returns the script of a path: the page's chosen blocks, made smaller, and more.

    Raises:
        ConfigError: The page has no blocks, or lacks text to replace.
    """
    taken = [
        (block.language, block.code)
        for block in blocks(ROOT / "docs" / path.page)
        if block.language in ("python", "bash") and "pip install" not in block.code
        if path.taken(block)
    ]
    parts = ["import subprocess, sys", "sys.path.insert(0, '')"]
    for language, code in taken:
        for large, small in path.smaller:
            code = code.replace(large, small)
        if language == "bash":
            parts.append(f"subprocess.run(['bash', '-euc', {code!r}], check=True)")
        elif path.file is None:
            parts.append(code)
        else:
            parts.append(f"open({path.file!r}, 'a').write({code!r})")
    for large, _ in path.smaller:
        if not any(large in code for _, code in taken):
            raise ConfigError(f"docs/{path.page} has no {large!r} any more.")
    if not taken:
        raise ConfigError(f"docs/{path.page} has no blocks of this path any more.")
    return "\n".join([*parts, path.after])


def _install(environment: Path, path: Route, options: NewcomerOptions) -> str:
    extras = f"[{','.join(path.extras)}]" if path.extras else ""
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "-q"]
    pins = ["-c", str(options.constraints.absolute())]
    tools = _TOOLS if "tests" in path.copied else ()
    return _run([options.python, "-m", "venv", str(environment)], ROOT) or _run(
        [*pip, *pins, f"{options.wheel.absolute()}{extras}", *tools], environment
    )


def _run(command: Sequence[str], folder: Path) -> str:
    """Runs a Python away from the checkout; returns the end of its output if it fails."""
    programs = Path(command[0]).parent
    without = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=without | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return "" if done.returncode == 0 else done.stdout[-3000:] or f"exit code {done.returncode}"


main = main_of(__file__, NewcomerOptions, _walk_all)

if __name__ == "__main__":
    sys.exit(main())
