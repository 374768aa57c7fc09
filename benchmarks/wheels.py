"""Systems for which every package has a wheel: `python benchmarks/wheels.py`."""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import requires
from pathlib import Path
from typing import Any

from console import print_now, table_head, table_row
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fleet_tools.errors import FleetToolsError
from fleet_tools.utils import cli
from fleet_tools.utils.drake_release import CONSTRAINTS

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SYSTEMS: dict[str, tuple[list[str], dict[str, str]]] = {
    "Linux x86-64": (
        ["manylinux2014_x86_64", *(f"manylinux_2_{n}_x86_64" for n in range(18, 42))],
        {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"},
    ),
    "Linux aarch64": (
        ["manylinux2014_aarch64", *(f"manylinux_2_{n}_aarch64" for n in range(18, 42))],
        {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "aarch64"},
    ),
    "macOS arm64": (
        [f"macosx_{n}_0_arm64" for n in range(11, 27)],
        {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"},
    ),
    "Windows x86-64": (
        ["win_amd64"],
        {"sys_platform": "win32", "platform_system": "Windows", "platform_machine": "AMD64"},
    ),
}
"""Platform tags and environment markers by system."""

_HEADER = table_head(["system", "Python", "glibc", *(f"no wheel, {name}" for name in CONSTRAINTS)])


class WheelsOptions(cli.Options):
    """Asks pip, by system and Python, for a wheel of every package that the basic installation has.

    Prints a row for each: which packages of a file of constraints have no wheel there, and the
    oldest C library that all wheels accept. Nothing is downloaded but descriptions.

    Exit codes:
    0: it was found out.
    2: pip does not answer.
    """


def _ask(options: WheelsOptions) -> int:
    pins = {name: _pinned(ROOT / name) for name in CONSTRAINTS}
    print_now(options, _HEADER)
    rows: list[dict[str, Any]] = []
    for system, (platforms, markers) in SYSTEMS.items():
        for python in PYTHONS:
            markers |= {"python_version": python, "python_full_version": f"{python}.0"}
            names = set(_needed("fleet-tools", markers))
            found = {
                lane: _missing(
                    [f"{name}=={versions[name]}" for name in sorted(names & versions.keys())],
                    platforms,
                    python,
                )
                for lane, versions in pins.items()
            }
            glibc = max((oldest for missing, oldest in found.values() if not missing), default="")
            missing = {lane: names for lane, (names, _) in found.items()}
            rows.append({"system": system, "python": python, "glibc": glibc, "missing": missing})
            cells = [", ".join(names) or "-" for names in missing.values()]
            print_now(options, table_row([system, python, glibc or "-", *cells]))
    options.report({"rows": rows}, lambda: "")
    return cli.OK


def _pinned(path: Path) -> dict[str, str]:
    """Returns the versions in a file of constraints, by normalized name."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    pairs = (line.split("==") for line in lines if line)
    return {canonicalize_name(name): version for name, version in pairs}


def _needed(
    package: str, markers: Mapping[str, str], known: set[str] | None = None
) -> Iterator[str]:
    """Yields the packages that an installed package requires on a system, and what these require.

    Args:
        package: Name of the package.
        markers: Environment markers of the system.
        known: Packages that were yielded already.
    """
    known = set() if known is None else known
    for text in _requirements(package):
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        marker = requirement.marker
        if name in known or (marker and not marker.evaluate({**markers, "extra": ""})):
            continue
        known.add(name)
        yield name
        yield from _needed(name, markers, known)


def _requirements(package: str) -> Iterable[str]:
    try:
        return requires(package) or ()
    except ImportError:  # required on another system only
        return ()


def _missing(wanted: list[str], platforms: list[str], python: str) -> tuple[list[str], str]:
    """Asks pip for wheels.

    Returns:
        The names of packages without a wheel, and the oldest C library that all others accept.
    """
    missing = []
    while True:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.json")
            command = [
                *(sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--quiet"),
                *("--only-binary=:all:", "--target", folder, "--python-version", python),
                *(word for platform in platforms for word in ("--platform", platform)),
                *("--report", str(report), *wanted),
            ]
            finished = subprocess.run(command, capture_output=True, text=True)
            if finished.returncode == 0:
                installs = json.loads(report.read_text())["install"]
                return missing, _oldest_glibc(each["download_info"]["url"] for each in installs)
        absent = re.search(r"No matching distribution found for ([\w.-]+)", finished.stderr)
        lost = [each for each in wanted if absent and each.startswith(f"{absent[1]}==")]
        if not lost:
            raise FleetToolsError(f"pip does not answer: {finished.stderr[-300:]}")
        missing += [absent[1] for _ in lost if absent]
        wanted = [each for each in wanted if each not in lost]


def _oldest_glibc(urls: Iterable[str]) -> str:
    """Returns the oldest C library that all of some wheels accept; empty if none asks for one."""
    oldest = [
        min(map(int, found))
        for url in urls
        if (found := re.findall(r"manylinux_2_(\d+)_", url.rpartition("/")[2]))
    ]
    return f"2.{max(oldest)}" if oldest else ""


PROGRAM = cli.Program("wheels", cli.Command(WheelsOptions, _ask), launcher="python benchmarks/")
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
