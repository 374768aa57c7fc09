"""Random changes of plain data, texts and files, and random Python values."""

import copy
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from support.damage import HOSTILE, damaged

SCALARS: tuple[Any, ...] = (
    *(0, -0.0, 1, 0.5, 2**31, 2**32, 2**64, 2**128, -(2**63), 10**100, 1e-320, 1e12, -1e12, 1e20),
    *(float("nan"), float("inf"), float("-inf"), False, "\0", "\n", "nan", "1e999", "on", "~"),
    *("a" * 300, "\u0661", "\u202e", "../..", "/dev/zero", "no such thing", "module:function"),
)
"""Further values that do not belong where they are put."""

JSON_TOKENS = (
    *("NaN", "Infinity", "1e999", "-0", r'"\ud800"', r"\u0000", "[" * 200, "{", "}", "]", ",", ":"),
    *('"', "9" * 200, "null", "true", "\ufeff", "\0", "//", "'", "\n", " " * 100, '{"a":1,"a":2}'),
)
YAML_TOKENS = (
    *("&a ", "*a", "<<: *a", "!!python/object:os.system ", "? ", "- ", "\t", "%YAML 9.9\n"),
    *("---\n", "...\n", "{", "[", "}", "]", "|", ">", "'", '"', "~", "0x", "1e999", ".nan", ".inf"),
    *("#", "1:1:1", "2001-13-41", "!!binary x", "!!set {a}", "!!timestamp x", "!!omap [", "\0"),
    *("\ufeff", ": ", "\n", "  ", "9" * 200, "[" * 200, "- " * 150, r'"\ud800"', r'"\x00"', "="),
    *("!!int x", "!!float x", "!!bool x", "0b", "0o8", "_", "-", "on", "null", "\x85", "\u2028"),
    "1e1e1",
)
XML_TOKENS = (
    *("<", ">", "</", "/>", "&lt;", "&x;", "<!--", "-->", "<![CDATA[", "]]>", "<?", '"', "'", "="),
    *("<link/>", "<joint/>", "<include/>", "<model>", "</model>", '<pose relative_to="x"/>', "\0"),
    *("nan", "inf", "-inf", "1e999", "1e-999", "-1", "0", "1e300", "0x10", "", " ", "\ufeff", "é"),
    *("<inertial/>", "<collision/>", "<geometry/>", "<mesh/>", "<uri>x</uri>", "1 1 1 1", "true"),
)


_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])")


def pick(generator: np.random.Generator, options: Sequence[Any]) -> Any:
    """Returns one of some values, as it is."""
    return options[int(generator.integers(len(options)))]


def scalar(generator: np.random.Generator) -> Any:
    """Returns a value that does not belong where it is put, or happens to."""
    if generator.integers(4) == 0:
        return float(generator.normal() * 10.0 ** generator.integers(-8, 9))
    return copy.deepcopy(pick(generator, (*HOSTILE, *SCALARS)))


def changed_data(data: Any, generator: np.random.Generator) -> Any:
    """Returns plain data with one to three places changed."""
    data = copy.deepcopy(data)
    for _ in range(pick(generator, (1, 1, 1, 2, 3))):
        places = list(_places(data))
        if not places:
            return scalar(generator)
        parent, key = pick(generator, places)
        match int(generator.integers(8)):
            case 0:
                del parent[key]
            case 1 | 2 if isinstance(parent[key], int | float):
                parent[key] = _nudged(parent[key], generator)
            case 3:
                source, other = pick(generator, places)
                if other in source if isinstance(source, dict) else other < len(source):
                    parent[key] = copy.deepcopy(source[other])
            case 4 if isinstance(parent, dict):
                parent[str(scalar(generator))] = parent.pop(key)
            case 5 if isinstance(parent, list):
                parent.insert(key, copy.deepcopy(parent[key]))
            case 6:
                parent[key] = [parent[key]]
            case _:
                parent[key] = scalar(generator)
    return data


def nudged_data(data: Any, generator: np.random.Generator) -> Any:
    """Returns plain data with one to three of its numbers changed, mostly to possible ones."""
    data = copy.deepcopy(data)
    places = [(parent, key) for parent, key in _places(data) if _is_number(parent[key])]
    for _ in range(int(generator.integers(1, 4))):
        parent, key = pick(generator, places)
        parent[key] = _nudged(parent[key], generator)
    return data


def changed_text(
    text: str, generator: np.random.Generator, tokens: Sequence[str], most: int = 3
) -> str:
    """Returns a text with tokens put in, and lines doubled, removed, moved, indented or joined."""
    for _ in range(int(generator.integers(1, most + 1))):
        at = int(generator.integers(len(text) + 1))
        lines = text.split("\n")
        line, other = generator.integers(len(lines), size=2).tolist()
        match int(generator.integers(8)):
            case 0 | 1:
                text = text[:at] + pick(generator, tokens) + text[at:]
            case 2:
                end = at + int(generator.integers(1, 20))
                text = text[:at] + pick(generator, tokens) + text[end:]
            case 3:
                text = text[:at] + text[at + int(generator.integers(1, 40)) :]
            case 4:
                text = "\n".join([*lines[:other], lines[line], *lines[other:]])
            case 5:
                lines[line], lines[other] = lines[other], lines[line]
                text = "\n".join(lines)
            case 6:
                lines[line] = " " * int(generator.integers(1, 5)) + lines[line]
                text = "\n".join(lines)
            case _:
                text = "\n".join(lines[:line] + lines[line + 1 :])
    return text


def changed_number(text: str, generator: np.random.Generator) -> str:
    """Returns a text with one of its numbers changed, mostly to another number."""
    found = pick(generator, list(_NUMBER.finditer(text)) or [re.match("", text)])
    factor = pick(generator, (-1, 0, 1e-6, 0.1, 0.5, 0.9, 1.1, 2, 10, 1e3, 1e9, 1e30))
    number = float(found.group() or 1) * factor
    new = str(scalar(generator)) if generator.integers(8) == 0 else f"{number:.9g}"
    return text[: found.start()] + new + text[found.end() :]


def changed_json(text: str, generator: np.random.Generator) -> bytes:
    """Returns a JSON text with changed data, tokens or bytes."""
    match int(generator.integers(4)):
        case 0:
            return damaged(text.encode(), generator)
        case 1:
            return changed_text(text, generator, JSON_TOKENS).encode(errors="surrogatepass")
    return json.dumps(changed_data(json.loads(text), generator)).encode()


def changed_header(text: str, generator: np.random.Generator) -> bytes:
    """Returns the header of a safetensors file with changed data or text, or another dtype."""
    if generator.integers(2):
        return changed_json(text, generator)
    kinds = list(re.finditer(r'"dtype":"(\w+)"', text)) or [re.match("", text)]
    found = pick(generator, kinds)
    new = f'"dtype":"{pick(generator, _DTYPES)}"'
    return (text[: found.start()] + new + text[found.end() :]).encode()


_DTYPES = (
    *("F8_E8M0", "F8_E4M3", "F8_E5M2", "F4", "F6_E2M3", "BF16", "F16", "F32", "F64", "C64", "BOOL"),
    *("I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64", "F128", ""),
)


def changed_lines(text: str, generator: np.random.Generator) -> bytes:
    """Returns a log of JSON lines, with one of them changed, doubled or removed."""
    lines = [line.encode() for line in text.splitlines()]
    at = int(generator.integers(len(lines)))
    match int(generator.integers(6)):
        case 0:
            lines.insert(at, lines[at])
        case 1:
            del lines[at]
        case _:
            lines[at] = changed_json(lines[at].decode(), generator)
    end = pick(generator, (b"\n", b"\n", b"\n", b"", b"\r\n", b"\n\n"))
    return b"\n".join(lines) + end


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Returns every container in plain data with each of its keys."""
    found, waiting = [], [data]
    while waiting:
        parent = waiting.pop()
        if isinstance(parent, dict | list):
            keys = list(parent) if isinstance(parent, dict) else range(len(parent))
            found += [(parent, key) for key in keys]
            waiting += [parent[key] for key in keys]
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _nudged(number: int | float, generator: np.random.Generator) -> int | float:
    factor = pick(generator, (-1, 0, 0.5, 0.9, 1.1, 2, 10, 1e3, 1e6, 1e-3))
    changed = number * factor + pick(generator, (0, 0, 1, -1, 1e-3))
    return int(changed) if isinstance(number, int) and generator.integers(4) else changed
