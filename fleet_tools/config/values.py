"""Frozen, typed values that survive a round trip through JSON or YAML."""

import hashlib
import json
import typing
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import pydantic

from fleet_tools.config.file_access import read_bounded
from fleet_tools.config.yaml_text import MAX_CHARACTERS, Location, YamlPlaces, parse_yaml
from fleet_tools.errors import ConfigError, UnknownNameError, shown


def _odd(count: int) -> int:
    if count % 2 == 0 or count < 3:
        raise ValueError("give an odd number, at least 3")
    return count


def _no_boolean(given: Any) -> Any:
    if isinstance(given, bool):
        raise ValueError("expected a number, not a boolean")
    return given


def _unset(value: Any) -> bool:
    """By a name of our own: documentation prints it, and reads `not_` as a reference."""
    return not value


Number = Annotated[float, pydantic.BeforeValidator(_no_boolean)]
Positive = Annotated[Number, pydantic.Field(gt=0)]
NonNegative = Annotated[Number, pydantic.Field(ge=0)]
Count = Annotated[int, pydantic.BeforeValidator(_no_boolean), pydantic.Field(ge=1)]
CountOrZero = Annotated[int, pydantic.BeforeValidator(_no_boolean), pydantic.Field(ge=0)]
OddCount = Annotated[Count, pydantic.AfterValidator(_odd)]
"""Number of evenly spaced points on a line, which include both ends and the middle."""
STORED_IF_SET = pydantic.Field(exclude_if=_unset)
"""For a field with the default 0, False, () or None, which is not written: so configurations
without it keep their digests, and the runs that are stored under these."""
SEEDS_END = 2**128
"""All seeds are below it."""
Seed = Annotated[CountOrZero, pydantic.Field(lt=SEEDS_END)]
"""Seed of a random number generator."""
Vector3 = tuple[Number, Number, Number]
Axis = tuple[str, str]
"""An axis from one named keypoint to another."""
Part = Literal["tool", "object"]
"""Bodies with keypoints in a scene."""

V = TypeVar("V", bound="Value")


class MisfitError(ValueError):
    """Raised by a validator of a whole value if one part of it does not fit.

    Args:
        place: Keys and indices from the value to the part, such as "success.0.tool"; "" for the
            whole.
        reason: Why the part does not fit.
    """

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}" if place else reason)
        self.reason = reason
        self.location: Location = tuple(
            int(part) if part.isdigit() else part for part in place.split(".") if part
        )


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
    lines = []
    for detail in error.errors(include_url=False):
        misfit = _misfit(detail)
        location = detail["loc"] + (misfit.location if misfit else ())
        reason = _reason(cls, detail)
        lines.append(f"{_dotted(location)}: {reason}" if location else reason)
    return lines


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
    return read_yaml(cls, load_text(path), str(path))


def load_text(path: Path) -> str:
    """Reads the text of a YAML file.

    Raises:
        ConfigError: The file is missing, too large or no text.
    """
    try:
        return read_bounded(path, MAX_CHARACTERS).decode()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from None


def read_yaml(cls: type[V], text: str, source: str) -> V:
    """Reads a value from a YAML text.

    Args:
        cls: Class of the value.
        text: The YAML.
        source: Origin of the text, for the error message.

    Raises:
        ConfigError: The text is not YAML, or does not fit; the message lists every place by its
            line and keys, and what is expected.
    """
    return validate(cls, parse_yaml(text, source), source, partial(cite, text, source))


def validate(cls: type[V], data: Any, source: str, cite: Callable[[Location, Location], str]) -> V:
    """Makes a value from the plain data of a text.

    Args:
        cls: Class of the value.
        data: The plain data.
        source: Origin of the data, for the error message.
        cite: Returns a place in the text for the message, as the function `cite` does.

    Raises:
        ConfigError: The data does not fit; the message lists every place, and what is expected.
    """
    try:
        return cls.model_validate(data)
    except pydantic.ValidationError as error:
        lines = "".join(
            f"\n  {cite(*_place(detail))}: {_reason(cls, detail)}"
            for detail in error.errors(include_url=False)
        )
        raise ConfigError(f"{source} is not a valid {cls.__name__}:{lines}") from None


def cite(text: str, source: str, location: Location, missing: Location = ()) -> str:
    """Returns a place in a YAML text for an error message, as "own.yaml, line 3: success.0".

    Args:
        text: A text that `read_yaml` reads.
        source: Origin of the text.
        location: Keys and indices that lead to the place; what the text does not hold is passed
            over.
        missing: A key that is missing there.
    """
    found, line = _places(text).find(location)
    file = Path(source).name + (f", line {line}" if line else "")
    keys = (*found, *missing)
    return f"{file}: {_dotted(keys)}" if keys else file


@lru_cache(maxsize=8)
def _places(text: str) -> YamlPlaces:
    return YamlPlaces(text)  # of one text, thousands of places may be cited


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


def _reason(cls: type[Value], detail: Any) -> str:
    """Returns why data does not fit."""
    reason = detail["msg"].removeprefix("Value error, ")
    given = detail["input"]
    if detail["type"] == "extra_forbidden":
        *parents, key = detail["loc"]
        siblings = _fields_at(cls, parents)
        reason = str(UnknownNameError("key", key, siblings)) if siblings else "unknown key"
    elif misfit := _misfit(detail):
        reason = misfit.reason
    elif detail["type"] != "missing" and not isinstance(given, Mapping):
        reason += f" (given: {shown(given)})"
    return reason


def _place(detail: Any) -> tuple[Location, Location]:
    """Returns the keys and indices to the place of an error, and the key that is missing there."""
    location = detail["loc"]
    if detail["type"] == "missing":
        return location[:-1], location[-1:]
    if misfit := _misfit(detail):
        return location + misfit.location, ()
    if detail["type"] == "union_tag_invalid":
        return (*location, detail["ctx"]["discriminator"].strip("'")), ()
    return location, ()


def _misfit(detail: Any) -> MisfitError | None:
    error = detail.get("ctx", {}).get("error")
    return error if isinstance(error, MisfitError) else None


def by_dotted_keys(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns nested content as one mapping, with keys such as "head.steps"."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            flat |= by_dotted_keys(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _dotted(location: Location) -> str:
    return ".".join(str(part) for part in location)


def _fields_at(annotation: Any, location: list) -> list[str]:
    """Returns the keys allowed at a place of a nested value; empty where they are not known."""
    options = [annotation]
    for part in location:
        options = [inner for option in options for inner in _inside(option, part)]
    fields = [value.model_fields for option in options for value in _alternatives(option)]
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
