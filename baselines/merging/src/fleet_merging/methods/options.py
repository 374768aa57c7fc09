"""Options of merging methods, as NAME=VALUE."""

import inspect
import json
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, get_args

from fleet_merging.errors import MergeError, UnknownChoiceError
from fleet_merging.matching.soft_descent import Descent
from fleet_merging.methods import registry
from fleet_merging.methods.facts import Method

MethodOptions = dict[str, bool | int | float | str | None]
"""Options of a method by name, as in a YAML file."""


def keyword_arguments(method: str, options: MethodOptions) -> dict[str, Any]:
    """Returns the keyword arguments of a method from the options of a YAML file.

    Raises:
        UnknownChoiceError, MergeError: There is no such method or option, or the option has no such
            value.
    """
    texts = [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in options.items()
    ]
    return read_options(registry.find(method), texts)


def read_options(method: Method, texts: Sequence[str]) -> dict[str, Any]:
    """Returns the keyword arguments of a method from texts.

    Args:
        method: The method.
        texts: NAME=VALUE for keyword arguments of the method, and for fields of its `Descent`.

    Raises:
        MergeError: A text has another form, or a value another type than the default.
        UnknownChoiceError: The method has no such option.
    """
    own = {
        name: parameter
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    begin: Descent = own["descent"].default or Descent() if "descent" in own else Descent()
    of_descent = {}
    if "descent" in own:
        del own["descent"]
        of_descent = {field.name: type(field.default) for field in fields(Descent)}
    known = {name: _kind(parameter) for name, parameter in own.items()} | of_descent
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
    options = {name: value for name, value in values.items() if name in own}
    descent = {name: value for name, value in values.items() if name in of_descent}
    if descent:
        options["descent"] = replace(begin, **descent)
    return options


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
