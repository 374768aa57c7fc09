"""Task files that extend others: `extends: hammer`, or the path of a file.

What a file says is merged over its base as in a JSON merge patch (RFC 7396). Mappings are merged
key by key, anything else replaces, and null takes a key away, so that its default holds. A
distribution, such as {uniform: [0, 1]}, is one value, which is replaced as a whole. The name is not
taken from a base. Paths are relative to the file that says them.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from fleet_tools.config.values import cite, load_text
from fleet_tools.config.yaml_text import Location, excess, parse_yaml
from fleet_tools.errors import ConfigError, FleetToolsError, shown

EXTENDS = "extends"
"""Key that names the base."""

MAX_LAYERS = 10
"""Largest number of files in a chain of extensions."""

_OWN, _PATHS = ("name",), ("assets",)  # not taken from a base; relative paths
_Dumper = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper
_DISTRIBUTIONS = ("uniform", "choice")


@dataclass(frozen=True)
class Layer:
    """One of the files.

    Attributes:
        path: Its path.
        text: Its text.
        content: Its plain data, without the key `extends`.
    """

    path: Path
    text: str
    content: Any

    def cite(self, location: Location, missing: Location = ()) -> str:
        """Returns a place in the file for an error message; see `fleet_tools.config.values`."""
        return cite(self.text, str(self.path), location, missing)


@dataclass(frozen=True)
class LayeredFile:
    """A file with all files that it extends.

    Attributes:
        layers: The file, its base, the base of that and so on; at least one.
        content: Their merged plain data.
    """

    layers: tuple[Layer, ...]
    content: Any

    @property
    def text(self) -> str:
        """A YAML text of the whole content: the file, verbatim, if it extends nothing."""
        own, *bases = self.layers
        if not bases:
            return own.text
        names = ", ".join(base.path.name for base in bases)
        body = yaml.dump(
            self.content,
            Dumper=_Dumper,
            sort_keys=False,
            allow_unicode=True,
            default_flow_style=None,
            width=100,
        )
        return f"# {own.path.name}, with what it takes from {names}\n{body}"

    def cite(self, location: Location, missing: Location = ()) -> str:
        """Returns a place of the content for an error message, in the file that says it.

        Args:
            location: Keys and indices that lead to it; what no file says is passed over.
            missing: A key that is missing there.
        """
        origin, nodes = self.layers[0], [(layer, layer.content) for layer in self.layers]
        for part in location:
            merged = takewhile(lambda each: _is_merged(each[1]), nodes)
            found = [(layer, node[part]) for layer, node in merged if part in node]
            if found:
                origin, nodes = found[0][0], found
        return origin.cite(location, missing)


def load_layers(path: Path, find: Callable[[str, Path], Path]) -> LayeredFile:
    """Reads a file and all files that it extends.

    Args:
        path: The file.
        find: Returns the path of a base, given what `extends` says and the folder of the file that
            says so, or raises a FleetToolsError.

    Raises:
        ConfigError: A file is missing or is not YAML. Or there is no such base, a file extends
            itself by way of others, or too many extend each other; the message tells the line.
    """
    layers: list[Layer] = []
    following: Path | None = path
    while following is not None:
        text = load_text(following)
        content = parse_yaml(text, str(following))
        base = content.pop(EXTENDS, None) if isinstance(content, dict) else None
        layers.append(Layer(following, text, content))
        following = None if base is None else _base_of(layers, base, find)
    *bases, content = [_seen_from(path.parent, layer) for layer in reversed(layers)]
    below: Any = {}
    for each in bases:
        below = _merge(below, each)
    if isinstance(below, dict) and bases:
        content = _merge({key: below[key] for key in below if key not in _OWN}, content)
    file = LayeredFile(tuple(layers), content)
    if bases and (reason := excess(file.text)) is not None:
        raise ConfigError(f"{path} is too large together with the files that it extends: {reason}")
    return file


def _base_of(layers: list[Layer], base: Any, find: Callable[[str, Path], Path]) -> Path:
    """Returns the path of the base of the last layer."""
    layer = layers[-1]
    place = layer.cite((EXTENDS,))
    if not isinstance(base, str):
        raise ConfigError(f"{place}: expected a name or the path of a file (given: {shown(base)})")
    try:
        path = find(base, layer.path.parent)
    except FleetToolsError as error:
        raise ConfigError(f"{place}: {error}") from None
    if path.resolve() in (each.path.resolve() for each in layers):
        names = " -> ".join(each.name for each in (*(one.path for one in layers), path))
        raise ConfigError(f"{place}: a file cannot extend itself: {names}")
    if len(layers) == MAX_LAYERS:
        raise ConfigError(f"{place}: at most {MAX_LAYERS} files extend each other")
    return path


def _seen_from(folder: Path, layer: Layer) -> Any:
    """Returns the content of a layer with its paths relative to another folder."""
    own = layer.path.parent
    if own == folder or not isinstance(layer.content, dict):
        return layer.content
    paths = {key: path for key in _PATHS if isinstance(path := layer.content.get(key), str)}
    return layer.content | {
        key: path if os.path.isabs(path) else os.path.relpath(own / path, folder)
        for key, path in paths.items()
    }


def _merge(below: Any, above: Any) -> Any:
    if not _is_merged(above):
        return above
    result = dict(below) if _is_merged(below) else {}
    for key, value in above.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result


def _is_merged(node: Any) -> bool:
    """Whether a node is merged with the base's, key by key."""
    return isinstance(node, dict) and not any(key in node for key in _DISTRIBUTIONS)
