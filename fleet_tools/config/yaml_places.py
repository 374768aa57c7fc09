"""Where in a YAML text a key stands, for error messages."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import yaml

from fleet_tools.config.yaml_reader import FastLoader

Location = tuple[str | int, ...]
"""Keys and indices from the top of a document to a place in it."""


class Place(NamedTuple):
    """A place in a text.

    Attributes:
        location: Keys and indices that lead there, of those that were asked for.
        line: Its line, from 1; None in an empty text.
    """

    location: Location
    line: int | None


class Repetition(NamedTuple):
    """A key that a mapping has more than once.

    Attributes:
        location: Where the key is.
        line: Line of the repetition.
        first_line: Line where the key was given first.
    """

    location: Location
    line: int
    first_line: int


class YamlPlaces:
    """The lines of a YAML text.

    Args:
        text: The text.

    Raises:
        yaml.YAMLError: It is not YAML.
    """

    def __init__(self, text: str) -> None:
        self._root: yaml.Node | None = yaml.compose(text, FastLoader)

    def find(self, location: Sequence[str | int]) -> Place:
        """Returns the place to which keys and indices lead.

        An entry of a mapping is where its key is. What the text does not hold is passed over, such
        as the names that pydantic gives to the alternatives of a union, so that a key that is
        missing is where its parent is.
        """
        if self._root is None:
            return Place((), None)
        *_, found, line = _best(self._root, tuple(location), _line(self._root))
        return Place(found, line)

    def repetitions(self) -> list[Repetition]:
        """Returns the keys that are given more than once, in the order of the text."""
        return sorted(_repetitions(self._root, (), set()), key=lambda each: each.line)


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
) -> Iterator[Repetition]:
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
                yield Repetition((*location, key.value), _line(key), first[key.value])
            first.setdefault(key.value, _line(key))
        yield from _repetitions(value, (*location, str(key.value)), seen)


def _entries(node: yaml.Node) -> list[tuple[yaml.Node, yaml.Node]]:
    return node.value if isinstance(node, yaml.MappingNode) else []


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1
