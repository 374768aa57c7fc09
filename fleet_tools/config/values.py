"""Frozen, typed values that survive a round trip through JSON or YAML."""

import contextlib
import hashlib
import json
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pydantic
import yaml

from fleet_tools.config.yaml_reader import FastLoader
from fleet_tools.errors import ConfigError, UnknownNameError


def _no_boolean(given: Any) -> Any:
    if isinstance(given, bool):
        raise ValueError("a number is expected, not a boolean")
    return given


Number = Annotated[float, pydantic.BeforeValidator(_no_boolean)]
Positive = Annotated[Number, pydantic.Field(gt=0)]
NonNegative = Annotated[Number, pydantic.Field(ge=0)]
Count = Annotated[int, pydantic.BeforeValidator(_no_boolean), pydantic.Field(ge=1)]
CountOrZero = Annotated[int, pydantic.BeforeValidator(_no_boolean), pydantic.Field(ge=0)]
Seed = CountOrZero
"""Seed of a random number generator."""
Vector3 = tuple[Number, Number, Number]
Vector7 = tuple[Number, Number, Number, Number, Number, Number, Number]
Axis = tuple[str, str]
"""An axis from one named keypoint to another."""

V = TypeVar("V", bound="Value")


class Value(pydantic.BaseModel):
    """Base of frozen records of plain numbers, names and other values; unknown keys are errors."""

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True
    )

    def to_json(self) -> str:
        """Returns the value as one line of JSON, from which `parse` makes an equal value."""
        return self.model_dump_json(by_alias=True)

    def digest(self) -> str:
        """Returns a short hash of the content, the same on every machine."""
        text = json.dumps(_without_negative_zeros(self.model_dump(mode="json")), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def parse(cls: type[V], data: Any, source: str) -> V:
    """Makes a value from plain data (dicts, lists, numbers, strings).

    Args:
        cls: Class of the value.
        data: Plain data, as `json.loads` or `yaml.safe_load` return it.
        source: Origin of the data, for the error message.

    Raises:
        ConfigError: The data does not fit; the message lists every place and what is expected.
    """
    try:
        return cls.model_validate(data)
    except pydantic.ValidationError as error:
        lines = "".join(f"\n  {line}" for line in describe_errors(cls, error))
        raise ConfigError(f"{source} is not a valid {cls.__name__}:{lines}") from None


def describe_errors(cls: type["Value"], error: pydantic.ValidationError) -> list[str]:
    """Returns a line for each place where data does not fit a value, as "PLACE: REASON"."""
    return [_line(cls, detail) for detail in error.errors(include_url=False)]


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Lists how two mappings differ, as "KEY is THIS, not THAT"; an absent value is None."""
    return [
        f"{key} is {one.get(key)!r}, not {other.get(key)!r}"
        for key in {**one, **other}
        if one.get(key) != other.get(key)
    ]


def load_yaml(cls: type[V], path: Path) -> V:
    """Reads a value from a YAML file.

    Raises:
        ConfigError: The file is missing, is not YAML, or does not fit.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from None
    return parse(cls, parse_yaml(text, str(path)), str(path))


def parse_yaml(text: str, source: str) -> Any:
    """Returns the plain data of a YAML text.

    Args:
        text: The YAML.
        source: Origin of the text, for the error message.

    Raises:
        ConfigError: The text is not YAML, or gives a key twice.
    """
    with contextlib.suppress(yaml.YAMLError):
        return yaml.load(text, _FastLoader)
    try:
        loader = _Loader(text)
        loader.name = source  # what error messages cite
        return loader.get_single_data()
    except yaml.YAMLError as error:
        raise ConfigError(f"{source} is not YAML: {error}") from None


class _UniqueKeys(yaml.constructor.SafeConstructor):
    """Refuses a key that is given twice, where YAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [key.value for key, _ in node.value]
        for key, _ in node.value:
            if keys.count(key.value) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is given twice", key.start_mark
                )
        return super().construct_mapping(node, deep)


class _Loader(_UniqueKeys, yaml.SafeLoader):
    """Reads in Python; its errors name the source, and show the line."""


class _FastLoader(_UniqueKeys, FastLoader):  # pyright: ignore[reportGeneralTypeIssues]
    """Reads fast; its errors do not name the source."""


def _without_negative_zeros(data: Any) -> Any:
    # They equal zeros, so values with either are equal, and must have one digest.
    match data:
        case dict():
            return {key: _without_negative_zeros(value) for key, value in data.items()}
        case list():
            return [_without_negative_zeros(value) for value in data]
        case float():
            return data + 0.0
    return data


def _line(cls: type[Value], detail: Any) -> str:
    """Returns where data does not fit, and why."""
    place = ".".join(str(part) for part in detail["loc"])
    message = detail["msg"].removeprefix("Value error, ")
    given = detail["input"]
    if detail["type"] == "extra_forbidden":
        *parents, key = detail["loc"]
        siblings = _fields_at(cls, parents)
        message = str(UnknownNameError("key", key, siblings)) if siblings else "unknown key"
    elif detail["type"] != "missing" and not isinstance(given, Mapping):
        shown = repr(given)
        message += f" (given: {shown if len(shown) <= 300 else shown[:300] + ' ...'})"
    return f"{place}: {message}" if place else message


def _fields_at(annotation: Any, location: list) -> list[str]:
    """Returns the keys allowed at a place of a nested value; empty where they are not known."""
    options = [annotation]
    for part in location:
        options = [inner for option in options for inner in _inside(option, part)]
    fields = [option.model_fields for option in options if _is_value(option)]
    return sorted({name for names in fields for name in names})


def _inside(annotation: Any, part: Any) -> list:
    if typing.get_origin(annotation) is Annotated:
        annotation = typing.get_args(annotation)[0]
    if _is_value(annotation):
        fields = annotation.model_fields
        return [fields[part].annotation] if part in fields else []
    tagged = [value for value in _alternatives(annotation) if part in _tags(value)]
    return tagged or list(typing.get_args(annotation))


def _alternatives(annotation: Any) -> list:
    if _is_value(annotation):
        return [annotation]
    return [value for inner in typing.get_args(annotation) for value in _alternatives(inner)]


def _tags(cls: type[Value]) -> tuple:
    field = cls.model_fields.get("type")
    return typing.get_args(field.annotation) if field else (cls.__name__, cls.__name__.lower())


def _is_value(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Value)
