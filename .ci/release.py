"""Sets the version wherever it is written: `python .ci/release.py 0.1.0 --date 2026-12-01`.

With a date that version is released: the changelog's present heading and the citation get the day.
Without one it is the next version: the changelog gets a new heading, which is `unreleased`. Nothing
is written unless every place was found.
"""

import argparse
import datetime
import re
import sys
from collections.abc import Callable
from pathlib import Path

VERSION = r"\d+\.\d+\.\d+"
PLACES = {
    "fleet_tools/__init__.py": rf'(?m)^(__version__ = "){VERSION}(")$',
    "CITATION.cff": rf"(?m)^(version: ){VERSION}()$",
    "README.md": rf"(?m)^(  version = \{{){VERSION}(\}},)$",
    "fleet_tools/policies/checkpoints/manifest.json": rf'(?m)^( "release": "){VERSION}(",)$',
    "baselines/merging/src/fleet_merging/__init__.py": rf'(?m)^(__version__ = "){VERSION}(")$',
}
"""Where the version stands, by file; what stands before and after it are groups."""

CHANGELOG, CITATION = "CHANGELOG.md", "CITATION.cff"
_HEADING = re.compile(rf"(?m)^## ({VERSION}), (.+)$")
_DAY = re.compile(r"(?m)^date-released: .+\n")


def main(arguments: list[str] | None = None) -> int:
    """Sets a version in a checkout; returns 0, or 2 if it cannot."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("version", help="such as 0.1.0")
    parser.add_argument("--date", help="day of the release, such as 2026-12-01")
    parser.add_argument("--checkout", type=Path, default=Path(__file__).resolve().parents[1])
    options = parser.parse_args(arguments)
    try:
        texts = changed(options.checkout, options.version, options.date)
    except ValueError as error:
        print(f"release.py: {error}", file=sys.stderr)
        return 2
    for name, text in texts.items():
        (options.checkout / name).write_text(text, encoding="utf-8")
        print(name)
    return 0


def changed(checkout: Path, version: str, date: str | None) -> dict[str, str]:
    """Returns the new texts of a checkout's files.

    Args:
        checkout: Its root.
        version: MAJOR.MINOR.PATCH.
        date: Day of the release; None for a version that is begun.

    Raises:
        ValueError: The version or the date is none, or is older than the changelog's, which must
            have a section of a version that is released, and none yet of one that is begun. Or a
            file has no version.
    """
    if not re.fullmatch(VERSION, version):
        raise ValueError(f"{version!r} is no version. Give MAJOR.MINOR.PATCH, such as 0.1.0.")
    if date is not None:
        date = datetime.date.fromisoformat(date).isoformat()
    texts = {
        name: _replaced(name, pattern, lambda found: f"{found[1]}{version}{found[2]}", checkout)
        for name, pattern in PLACES.items()
    }
    texts[CITATION] = _DAY.sub("", texts[CITATION])
    if date is not None:
        line = f"version: {version}\n"
        texts[CITATION] = texts[CITATION].replace(line, f"{line}date-released: {date}\n")
    texts[CHANGELOG] = _changelog((checkout / CHANGELOG).read_text(encoding="utf-8"), version, date)
    return texts


def _replaced(name: str, pattern: str, by: Callable[[re.Match[str]], str], checkout: Path) -> str:
    text, number = re.subn(pattern, by, (checkout / name).read_text(encoding="utf-8"))
    if number != 1:
        raise ValueError(f"{name} has {number} lines of the form {pattern}, where one is wanted.")
    return text


def _changelog(text: str, version: str, date: str | None) -> str:
    latest = _HEADING.search(text)
    if latest is None:
        raise ValueError(f"{CHANGELOG} has no heading such as '## 0.1.0, unreleased'.")
    if latest[2] != "unreleased" and latest[1] == version:
        raise ValueError(f"{version} was released on {latest[2]}. Begin the next version first.")
    if _numbers(version) < _numbers(latest[1]):
        raise ValueError(f"{version} is older than {latest[1]}, the latest in {CHANGELOG}.")
    heading = f"## {version}, {date or 'unreleased'}"
    if latest[2] == "unreleased":
        return text.replace(latest[0], heading, 1)
    if date is not None:
        raise ValueError(f"{CHANGELOG} says nothing of {version}. Begin it without --date first.")
    return text.replace(latest[0], f"{heading}\n\n{latest[0]}", 1)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


if __name__ == "__main__":
    sys.exit(main())
