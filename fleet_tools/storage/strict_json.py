"""Strict JSON: rejects duplicate keys, NaN, lone surrogates and oversized input.

All programs read the JSON of others by `load` and `loads`, as they read YAML by `parse_yaml`.
"""

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

from fleet_tools.config.file_access import read_bounded

MAX_CHARACTERS = 16_000_000
"""Largest size of a text; the leaderboard's results have 14,000, the lines of their logs 4,000."""

MAX_DEPTH = 100
"""Largest number of levels."""

MAX_DIGITS = 100
"""Largest number of characters of an integer."""

_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD]")  # half of a character, perhaps with its other half


def load(path: Path) -> Any:
    """Reads a file of JSON.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no regular file, too large, or its text is refused by `loads`.
    """
    return loads(read_bounded(path, MAX_CHARACTERS).decode())


def loads(text: str) -> Any:
    """Reads JSON.

    Raises:
        ValueError: The text is not JSON, gives a key twice, holds NaN, infinity or half of a
            character, or exceeds the bounds.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"it has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read")
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise ValueError(f"it is nested too deeply: more than {MAX_DEPTH} levels")
    data = json.loads(
        text,
        object_pairs_hook=_unique,
        parse_constant=_no_constant,
        parse_int=_integer,
        parse_float=_finite,
    )
    if _SURROGATE.search(text):
        try:
            json.dumps(data, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("it holds half of a character (a lone surrogate)") from None
    return data


def _depth(text: str) -> int:
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", _STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(depth, deepest)
    return deepest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        name, count = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {name!r} is given {count} times")
    return data


def _integer(text: str) -> int:
    if (digits := len(text.removeprefix("-"))) > MAX_DIGITS:
        raise ValueError(f"an integer has {digits:,} digits; at most {MAX_DIGITS} are read")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.40} is too large a number")
    return number


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")
