"""JSON in which nothing is said twice, and NaN and infinity are no numbers."""

import json
import os
from collections import Counter
from pathlib import Path

from fleet_tools.errors import ResultError


def read_objects(path: Path, *, by_line: bool = False) -> list[dict]:
    """Reads the JSON objects of a file.

    Args:
        path: Of the file, which ends with a line's end.
        by_line: Each line is one; otherwise the whole file is.

    Raises:
        ResultError: It is missing, cut off or no such JSON.
        RecursionError: It is nested too deeply.
    """
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        raise ResultError(f"{path.name} is missing") from None
    except OSError as error:
        raise ResultError(f"{path.name} cannot be read: {os.strerror(error.errno)}") from None
    except UnicodeDecodeError:
        raise ResultError(f"{path.name} is no text") from None
    if not text.endswith("\n"):
        raise ResultError(f"{path.name} is cut off: its last line has no end")
    parts = text[:-1].split("\n") if by_line else [text]
    objects = []
    for number, part in enumerate(parts, 1):
        place = f"{path.name}, line {number}," if by_line else path.name
        try:
            objects.append(json.loads(part, object_pairs_hook=_once, parse_constant=_no_constant))
        except ValueError as error:
            raise ResultError(f"{place} is no JSON: {error}") from None
        if not isinstance(objects[-1], dict):
            raise ResultError(f"{place} is no JSON object")
    return objects


def _once(pairs: list[tuple[str, object]]) -> dict:
    names = Counter(name for name, _ in pairs)
    for name, count in names.items():
        if count > 1:
            raise ValueError(f"{name!r} is said {count} times")
    return dict(pairs)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")
