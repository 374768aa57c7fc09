"""Prints the lines of Python by package, beside their budgets: `python .ci/lines.py`."""

import subprocess
from collections import Counter
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
PRODUCT = ("fleet_tools", "baselines", "experts", "assets")
MERGING = "baselines/merging/src"
BUDGETS = {"product": 79_000, MERGING: 11_500, "benchmarks": 8_000, "tests": 55_000}
"""Goals. `tests` includes the tests of fleet-merging."""


def package_of(path: str) -> str:
    """Returns the package in which a file is counted: the first two levels of the product."""
    if path.startswith(MERGING):
        return MERGING
    if path.startswith(("tests/", "baselines/merging/tests/")):
        return "tests"
    top, *below = path.split("/")
    return f"{top}/{below[0]}" if top in PRODUCT[:2] and len(below) > 1 else top


def main() -> None:
    """Prints the table."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    lines, files = Counter[str](), Counter[str]()
    for path in listed.stdout.splitlines():
        count = len((CHECKOUT / path).read_text().splitlines())
        package = package_of(path)
        product = package.partition("/")[0] in PRODUCT
        for name in {package, "product"} if product else {package}:
            lines[name] += count
            files[name] += 1
    print(f"{'package':32}{'files':>7}{'lines':>9}{'budget':>9}")
    for name in sorted(lines):
        print(f"{name:32}{files[name]:7}{lines[name]:9,}{BUDGETS.get(name, ''):>9}")


if __name__ == "__main__":
    main()
