"""Values: frozen, typed, and the same after a trip through JSON or YAML."""

import hashlib
import json
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pydantic
import yaml

from fleet_tools.errors import ConfigError, UnknownNameError


def _no_boolean(given: Any) -> Any:
    if isinstance(given, bool):
        raise ValueError("a number is wanted, not a boolean")
    return given


Number = Annotated[float, pydantic.BeforeValidator(_no_boolean)]
Positive = Annotated[Number, pydantic.Field(gt=0)]
NonNegative = Annotated[Number, pydantic.Field(ge=0)]
Count = Annotated[int, pydantic.BeforeValidator(_no_boolean), pydantic.Field(ge=1)]
Vector3 = tuple[Number, Number, Number]
Vector7 = tuple[Number, Number, Number, Number, Number, Number, Number]
Axis = tuple[str, str]
"""From one keypoint to another."""

V = TypeVar("V", bound="Value")


class Value(pydantic.BaseModel):
    """A frozen record of plain numbers, names and other values; unknown keys are errors."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

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
        cls: The value's class.
        data: As `json.loads` or `yaml.safe_load` return it.
        source: Where the data comes from, for the message.

    Raises:
        ConfigError: The data does not fit; the message lists every place and what is expected.
    """
    try:
        return cls.model_validate(data)
    except pydantic.ValidationError as error:
        details = error.errors(include_url=False)
        lines = [f"  {_place(detail['loc'])}: {_explain(cls, detail)}" for detail in details]
        raise ConfigError(f"{source} is not a valid {cls.__name__}:\n" + "\n".join(lines)) from None


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Says what two mappings have otherwise: "KEY is THIS, not THAT"; what is absent is None."""
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
        data = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}") from None
    return parse(cls, data, str(path))


class _Loader(yaml.SafeLoader):
    """Refuses a key that is given twice, where YAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [key.value for key, _ in node.value]
        for key, _ in node.value:
            if keys.count(key.value) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is given twice", key.start_mark
                )
        return super().construct_mapping(node, deep)


def _place(location: tuple) -> str:
    return ".".join(str(part) for part in location) or "(top)"


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


def _explain(cls: type, detail: dict) -> str:
    message = detail["msg"]
    if detail["type"] == "extra_forbidden":
        *parents, key = detail["loc"]
        siblings = _fields_at(cls, parents)
        return str(UnknownNameError("key", key, siblings)) if siblings else "unknown key"
    if detail["type"] != "missing":
        given = repr(detail["input"])
        message += f" (given: {given if len(given) <= 300 else given[:300] + ' ...'})"
    return message


def _fields_at(annotation: Any, location: list) -> list[str]:
    """The keys that are allowed at a place of a nested value; empty where that is not known."""
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
