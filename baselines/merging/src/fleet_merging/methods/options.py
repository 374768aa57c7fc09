"""Options of merging methods, as NAME=VALUE."""

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, get_args

from fleet_merging.errors import MergeError, UnknownChoiceError
from fleet_merging.matching.soft_descent import Descent
from fleet_merging.methods import registry
from fleet_merging.methods.facts import Method

MethodOptions = dict[str, bool | int | float | str | None]
"""Options of a method by name, as in a YAML file."""


def keyword_arguments(method: str, options: MethodOptions) -> dict[str, Any]:
    """Returns the keyword arguments of a method, by its name, from the options of a YAML file.

    Raises the errors of `registry.find` and `read_options`.
    """
    texts = [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in options.items()
    ]
    return read_options(registry.find(method), texts)


def read_options(method: Method, texts: Sequence[str]) -> dict[str, Any]:
    """Returns the keyword arguments of a method from texts.

    Texts are NAME=VALUE for keyword arguments of the method, and for fields of its `Descent`.
    Raises an `UnknownChoiceError` for another name, and a `MergeError` for a text of another form
    or a value of another type than the default.
    """
    own, of_descent = _known(method)
    own.pop("descent", None)
    known = {name: _kind(each) for name, each in own.items()} | of_descent
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise MergeError(
                f"The option {text!r} is not of the form NAME=VALUE, such as epochs=5."
            )
        if name not in known:
            raise UnknownChoiceError.of("option of this method", name, known)
        values[name] = _parse(name, value, known[name])
    return bound(method, values)


def bound(method: Method, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns keyword arguments of a method; fields of its descent may be given by name.

    Raises an `UnknownChoiceError` if the method has no such option.
    """
    parameters = inspect.signature(method).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return dict(given)
    own, of_descent = _known(method)
    for name in given:
        if name not in own | of_descent:
            raise UnknownChoiceError.of("option of this method", name, own | of_descent)
    options = {name: value for name, value in given.items() if name in own}
    if changes := {name: value for name, value in given.items() if name not in own}:
        begin = options.get("descent") or own["descent"].default or Descent()
        options["descent"] = replace(begin, **changes)
    return options


def _known(method: Method) -> tuple[dict[str, inspect.Parameter], dict[str, type]]:
    """Returns the options of a method, and the types of its descent's other fields."""
    parameters = inspect.signature(method).parameters
    own = {name: each for name, each in parameters.items() if each.kind is each.KEYWORD_ONLY}
    if "descent" not in own:
        return own, {}
    return own, {each.name: type(each.default) for each in fields(Descent) if each.name not in own}


def _kind(parameter: inspect.Parameter) -> Any:
    """Returns the type of an option: its annotation, or the type of its default."""
    written = parameter.annotation not in (parameter.empty, Any)
    if written and not isinstance(parameter.annotation, str):
        return parameter.annotation
    return int | None if parameter.default is None else type(parameter.default)


def _parse(name: str, text: str, kind: Any) -> Any:
    kinds = get_args(kind) or (kind,)
    if type(None) in kinds and text in ("none", "null"):
        return None
    kind = next((each for each in (bool, int, float, str) if each in kinds), str)
    if kind is bool and text in ("true", "false"):
        return text == "true"
    try:
        if kind is not bool:
            return kind(text)
    except ValueError:
        pass
    expected = {bool: "true or false", int: "an integer", float: "a number"}[kind]
    expected += " or none" if type(None) in kinds else ""
    raise MergeError(f"The option {name} is {expected}; given: {text!r}.")
