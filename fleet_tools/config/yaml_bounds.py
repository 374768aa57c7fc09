"""Bounds of YAML texts, checked in their stream of events, before anything is built of them."""

from collections.abc import Iterator

import yaml

from fleet_tools.config.yaml_reader import FastLoader

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
        return _excess_of(yaml.parse(text, FastLoader))
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
