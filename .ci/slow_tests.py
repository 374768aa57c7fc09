"""What the slow tests gave, by folder: `python benchmarks/slow_tests.py REPORT.xml`.

The report is JUnit's, as `pytest -m slow --junitxml=REPORT.xml` writes it.
"""

import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from fleet_tools.errors import FleetToolsError
from fleet_tools.storage.provenance import installed_packages
from fleet_tools.utils import cli
from fleet_tools.utils.machine import machine_name

_ENDS = {"failure": "failed", "error": "failed", "skipped": "skipped"}


class SlowTestsOptions(cli.Options):
    """Prints a table of a run of tests: how many passed, failed or were skipped, and their time.

    Exit codes:
    0: none failed.
    1: one did.
    2: there is no such report.
    """

    junit: Annotated[Path, Positional, arg(metavar="REPORT.xml")]
    """Report of pytest."""


def rows(cases: Iterable[ET.Element]) -> dict[str, Counter[str]]:
    """Returns the numbers of tests by folder and end, and their seconds."""
    found: dict[str, Counter[str]] = {}
    for case in cases:
        parts = case.get("classname", "").split(".")
        folder = parts[1] if len(parts) > 2 else "tests"
        ends = [_ENDS[child.tag] for child in case if child.tag in _ENDS]
        counts = found.setdefault(folder, Counter())
        counts[ends[0] if ends else "passed"] += 1
        counts["seconds"] += round(float(case.get("time", 0)))
    return dict(sorted(found.items()))


def as_table(found: dict[str, Counter[str]], date: str) -> str:
    """Returns the table as Markdown, with what it was made on."""
    columns = ("passed", "failed", "skipped", "seconds")
    lines = [f"| tests | {' | '.join(columns)} |", f"|{'---|' * (1 + len(columns))}"]
    for name, counts in {**found, "all": sum(found.values(), Counter())}.items():
        lines.append(f"| {name} | {' | '.join(f'{counts[each]:,}' for each in columns)} |")
    packages = ", ".join(f"{name} {version}" for name, version in installed_packages().items())
    return "\n".join([*lines, "", f"{date}; {machine_name()}; {packages}."])


def _print(options: SlowTestsOptions) -> int:
    try:
        report = ET.parse(options.junit).getroot()
    except (OSError, ET.ParseError) as error:
        raise FleetToolsError(f"{options.junit} is no report: {error}") from None
    found = rows(report.iter("testcase"))
    date = next((each.get("timestamp", "")[:10] for each in report.iter("testsuite")), "")
    summary = {"date": date, "tests": {name: dict(counts) for name, counts in found.items()}}
    options.report(summary, lambda: as_table(found, date))
    return cli.FAILED if any(counts["failed"] for counts in found.values()) else cli.OK


PROGRAM = cli.Program(
    "slow_tests.py", cli.Command(SlowTestsOptions, _print), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
