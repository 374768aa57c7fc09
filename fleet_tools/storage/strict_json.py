"""JSON with one reading only: no duplicate keys, no NaN, no infinity, no half characters."""

import json
import re
from collections import Counter
from typing import Any

_SURROGATE = re.compile(r"\\u[dD]")  # half of a character, perhaps with its other half


def loads(text: str) -> Any:
    """Reads JSON.

    Raises:
        ValueError: The text is not JSON, gives a key twice, holds NaN, infinity or half of a
            character, or is nested too deeply.
    """
    try:
        data = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if _SURROGATE.search(text):
        try:
            json.dumps(data, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("it holds half of a character (a lone surrogate)") from None
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    counts = Counter(name for name, _ in pairs)
    for name, count in counts.items():
        if count > 1:
            raise ValueError(f"the key {name!r} is given {count} times")
    return dict(pairs)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")
