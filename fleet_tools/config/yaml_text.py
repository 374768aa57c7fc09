"""YAML texts as plain data; what is wrong with one is told with its line."""

from pathlib import Path
from typing import Any

import yaml

from fleet_tools.config.yaml_bounds import MAX_DEPTH, MAX_DIGITS, excess
from fleet_tools.config.yaml_places import YamlPlaces
from fleet_tools.config.yaml_reader import FastLoader
from fleet_tools.errors import ConfigError


def parse_yaml(text: str, source: str) -> Any:
    """Returns the plain data of a YAML text.

    Args:
        text: The YAML.
        source: Origin of the text, for the error message.

    Raises:
        ConfigError: The text is not YAML, gives a key twice, or exceeds the bounds
            (`fleet_tools.config.yaml_bounds`).
    """
    if (reason := excess(text)) is not None:
        raise ConfigError(f"{source} is too large:\n  {Path(source).name}, {reason}")
    try:
        return yaml.load(text, _FastLoader)
    except Exception as error:  # of a scalar that does not fit its tag, of many classes
        raise ConfigError(_complaint(text, source, error)) from None


class _FastLoader(FastLoader):  # pyright: ignore[reportGeneralTypeIssues]
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
        f"\n  {Path(source).name}, line {each.line}: {'.'.join(map(str, each.location))}: the key "
        f"{each.location[-1]!r} is given twice, first in line {each.first_line}"
        for each in repetitions
    )
    return f"{source} gives a key twice:{lines}"
