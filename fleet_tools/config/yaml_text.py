"""Strict YAML as plain data: bounded, without repeated keys, with line numbers in errors."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from fleet_tools.errors import ConfigError

_LibraryLoader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
"""Reads by libyaml where PyYAML has it, about ten times faster; its errors name no source."""

MAX_CHARACTERS = 500_000
"""Largest size of a text; the package's own have 5,000 at most."""

MAX_DEPTH = 100
"""Largest number of levels."""

MAX_NODES = 50_000
"""Largest number of scalars, lists and mappings, an alias counted as all that it stands for."""

MAX_DIGITS = 100
"""Largest number of characters of a number."""


def excess(text: str) -> str | None:
    """Returns in what a text exceeds the bounds, with the line; None if it does not.

    What follows an error of syntax is not looked at.
    """
    if len(text) > MAX_CHARACTERS:
        return f"line 1: it has {len(text):,} characters, at most {MAX_CHARACTERS:,}"
    try:
        return _excess_of(yaml.parse(text, _LibraryLoader))
    except yaml.YAMLError:
        return None


def _excess_of(events: Iterator[yaml.Event]) -> str | None:
    nodes = 0
    sizes: dict[str, int] = {}  # by anchor, of what is complete
    open_: list[tuple[str | None, int]] = []  # anchor, and number of nodes before, of each level
    for event in events:
        line = f"line {event.start_mark.line + 1}"
        match event:
            case yaml.CollectionStartEvent():
                open_.append((event.anchor, nodes))
                nodes += 1
                if len(open_) > MAX_DEPTH:
                    return f"{line}: it is nested more than {MAX_DEPTH} deep"
            case yaml.CollectionEndEvent():
                anchor, before = open_.pop()
                if anchor is not None:
                    sizes[anchor] = nodes - before
            case yaml.ScalarEvent():
                nodes += 1
                if event.anchor is not None:
                    sizes[event.anchor] = 1
            case yaml.AliasEvent():
                if any(anchor == event.anchor for anchor, _ in open_):
                    return f"{line}: *{event.anchor} refers to itself"
                nodes += sizes.get(event.anchor, 1)
        if nodes > MAX_NODES:
            return f"{line}: it has more than {MAX_NODES:,} values, aliases counted in full"
    return None


Location = tuple[str | int, ...]
"""Keys and indices from the top of a document to a place in it."""


class YamlPlaces:
    """The lines of a YAML text.

    Args:
        text: The text.

    Raises:
        yaml.YAMLError: It is not YAML.
    """

    def __init__(self, text: str) -> None:
        self._root: yaml.Node | None = yaml.compose(text, _LibraryLoader)

    def find(self, location: Sequence[str | int]) -> tuple[Location, int | None]:
        """Returns the place to which keys and indices lead: those used, and its line, from 1.

        An entry of a mapping is where its key is. What the text does not hold is passed over, such
        as the names that pydantic gives to the alternatives of a union, so that a key that is
        missing is where its parent is.
        """
        if self._root is None:
            return (), None  # the text is empty
        *_, found, line = _best(self._root, tuple(location), _line(self._root))
        return found, line

    def repetitions(self) -> list[tuple[int, Location, int]]:
        """Returns the keys that are given more than once: line, place, and line of the first."""
        return sorted(_repetitions(self._root, (), set()), key=lambda each: each[0])


def _best(node: yaml.Node, location: Location, line: int) -> tuple[bool, int, Location, int]:
    """Returns the way that reaches the last key if any does, and otherwise uses the most keys."""
    if not location:
        return True, 0, (), line
    part, *rest = location
    reaches, used, found, at = _best(node, tuple(rest), line)
    passing_over = reaches and bool(rest), used, found, at
    child = _child(node, part)
    if child is None:
        return passing_over
    reaches, used, found, at = _best(child[1], tuple(rest), child[0])
    return max((reaches, used + 1, (part, *found), at), passing_over, key=lambda way: way[:2])


def _child(node: yaml.Node, part: str | int) -> tuple[int, yaml.Node] | None:
    """Returns line and value of an entry; None if there is none."""
    if isinstance(node, yaml.SequenceNode):
        entries = dict(enumerate(node.value))
        return (_line(entries[part]), entries[part]) if part in entries else None
    for key, value in _entries(node):
        if key.value == str(part):
            return _line(key), value
    for key, value in _entries(node):
        if key.tag == "tag:yaml.org,2002:merge":
            merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for one in merged:
                if one is not node and (found := _child(one, part)) is not None:
                    return found
    return None


def _repetitions(
    node: yaml.Node | None, location: Location, seen: set[int]
) -> Iterator[tuple[int, Location, int]]:
    if node is None or id(node) in seen:  # an alias may even lead to itself
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _repetitions(value, (*location, index), seen)
    first: dict[str, int] = {}
    for key, value in _entries(node):
        if isinstance(key, yaml.ScalarNode):
            if key.value in first:
                yield _line(key), (*location, key.value), first[key.value]
            first.setdefault(key.value, _line(key))
        yield from _repetitions(value, (*location, str(key.value)), seen)


def _entries(node: yaml.Node) -> list[tuple[yaml.Node, yaml.Node]]:
    return node.value if isinstance(node, yaml.MappingNode) else []


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1


def parse_yaml(text: str, source: str) -> Any:
    """Returns the plain data of a YAML text.

    Args:
        text: The YAML.
        source: Origin of the text, for the error message.

    Raises:
        ConfigError: The text is not YAML, gives a key twice, or is too large.
    """
    if (reason := excess(text)) is not None:
        raise ConfigError(f"{source} is too large:\n  {Path(source).name}, {reason}")
    try:
        return yaml.load(text, _FastLoader)
    except Exception as error:  # of a scalar that does not fit its tag, of many classes
        raise ConfigError(_complaint(text, source, error)) from None


class _FastLoader(_LibraryLoader):  # pyright: ignore[reportGeneralTypeIssues]
    """Refuses a key that is given twice, where YAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(keys)) < len(keys):
            raise yaml.constructor.ConstructorError(None, None, "a key is given twice", None)
        return super().construct_mapping(node, deep)


def _construct_int(loader: Any, node: yaml.ScalarNode) -> int:
    """Refuses integers that are too long to be written again."""
    if len(node.value) > MAX_DIGITS:
        reason = f"a number has {len(node.value):,} characters, at most {MAX_DIGITS}"
        raise yaml.constructor.ConstructorError(None, None, reason, node.start_mark)
    return loader.construct_yaml_int(node)


class _Loader(yaml.SafeLoader):
    """Reads in Python; its errors name the source, and show the line."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (yaml.YAMLError, RecursionError):
            raise
        except Exception as error:
            reason = f"{node.value!r:.80} is no {node.tag.rpartition(':')[-1]}"
            raise yaml.constructor.ConstructorError(None, None, reason, node.start_mark) from error


for _each in (_FastLoader, _Loader):
    _each.add_constructor("tag:yaml.org,2002:int", _construct_int)


def _complaint(text: str, source: str, error: Exception) -> str:
    """Returns what is wrong with a text, for which the fast loader has raised an error."""
    try:
        loader = _Loader(text)
        loader.name = source
        loader.get_single_data()
        repetitions = YamlPlaces(text).repetitions()
    except yaml.YAMLError as told:
        return f"{source} is not YAML: {told}"
    except RecursionError:
        return f"{source} is nested more than {MAX_DEPTH} deep."
    if not repetitions:
        return f"{source} is not YAML: {error}"
    lines = "".join(
        f"\n  {Path(source).name}, line {line}: {'.'.join(map(str, location))}: the key "
        f"{location[-1]!r} is given twice, first in line {first_line}"
        for line, location, first_line in repetitions
    )
    return f"{source} gives a key twice:{lines}"
