"""Words for the fields of pydantic models: descriptions, types, defaults and units, as Markdown."""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pydantic
from typing_extensions import TypeAliasType

_PLAIN = {
    float: "number",
    int: "integer",
    bool: "true or false",
    str: "text",
    Path: "path",
    NoneType: "`null`",
    Any: "any value",
}
_LIMITS = {"gt": "greater than", "ge": "at least", "lt": "less than", "le": "at most"}
_LENGTHS = ("min_length", "max_length")
# The longest ending that fits decides.
_UNITS = {
    "_rad_s": "rad/s",
    "_m_s": "m/s",
    "_m": "m",
    "_deg": "degrees",
    "_rad": "rad",
    "_s": "s",
    "_hz": "Hz",
}
_SPECIAL = re.compile(r"([\\<>*\[\]{}|$_])")
_OPTION = re.compile(r"(?<![\w`-])--[a-z][a-z-]*")


def escape(text: str) -> str:
    """Returns a docstring as Markdown: code spans stay, options become code, the rest is text."""
    text = _outside_code(text, lambda part: _OPTION.sub(r"`\g<0>`", part))
    return _outside_code(text, lambda part: _SPECIAL.sub(r"\\\1", part))


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else change(part) for part in parts)


def field_types(cls: type[pydantic.BaseModel]) -> dict[str, Any]:
    """Returns the types of a model's fields, with the metadata of `Annotated`."""
    types: dict[str, Any] = {}
    for base in reversed(_own_classes(cls)):
        types |= inspect.get_annotations(base, eval_str=True)
    return {name: types[name] for name in cls.model_fields}


def _own_classes(cls: type) -> list[type]:
    """Returns the class and its bases as far as they are models of the package."""
    return [
        base
        for base in cls.__mro__
        if issubclass(base, pydantic.BaseModel) and base is not pydantic.BaseModel
    ]


def attribute_docs(cls: type[pydantic.BaseModel]) -> dict[str, str]:
    """Returns what is said of each field of a model.

    It stands in a string below the field, in the section "Attributes" of the class's docstring, or
    in the field's own description.
    """
    docs: dict[str, str] = {}
    for base in reversed(_own_classes(cls)):
        docs |= _attributes_section(base.__doc__ or "") | _strings_below(base)
    described = {name: field.description for name, field in cls.model_fields.items()}
    docs = {name: text for name, text in described.items() if text} | docs
    return {name: " ".join(text.split()) for name, text in docs.items()}


def _strings_below(cls: type) -> dict[str, str]:
    try:
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError):  # made at run time
        return {}
    assert isinstance(node, ast.ClassDef)
    docs = {}
    for field, below in zip(node.body, node.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                docs[name] = text
    return docs


def _attributes_section(docstring: str) -> dict[str, str]:
    _, _, section = inspect.cleandoc(docstring).partition("\nAttributes:\n")
    docs: dict[str, str] = {}
    for entry in re.split(r"\n(?=    \S)", "\n" + section)[1:]:
        names, _, text = entry.partition(":")
        docs |= {name.strip(): text for name in names.split(",")}
    return docs


def description(cls: type) -> str:
    """Returns a class's docstring without its section "Attributes"."""
    return inspect.cleandoc(cls.__doc__ or "").partition("\nAttributes:\n")[0].strip()


def type_words(annotation: Any, name_of: Callable[[Any], str | None]) -> str:
    """Returns a type in words.

    Args:
        annotation: The type, with the metadata of `Annotated`.
        name_of: Returns the Markdown of types that have names of their own, else None.
    """
    if (named := name_of(annotation)) is not None:
        return named
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if isinstance(annotation, TypeAliasType):  # pydantic.JsonValue
        return "any value"
    arguments = get_args(annotation)
    match get_origin(annotation):
        case origin if origin is Annotated:
            words = type_words(arguments[0], name_of)
            for each in arguments[1:]:
                words = _with_limits(words, each)
            return words
        case origin if origin is Literal:
            return _any_of([f"`{_plain_yaml(each)}`" for each in arguments])
        case origin if origin in (Union, UnionType):
            return _any_of([type_words(each, name_of) for each in _flat(arguments)])
        case origin if origin is tuple:
            return _list_words(arguments, name_of)
        case origin if origin is dict:
            return f"mapping from names to: {type_words(arguments[1], name_of)}"
    return f"`{getattr(annotation, '__name__', annotation)}`"


def _flat(arguments: tuple[Any, ...]) -> Iterator[Any]:
    """Yields the alternatives of a union, each value of a Literal as one of its own."""
    for each in arguments:
        if get_origin(each) is Literal:
            yield from (Literal[value] for value in get_args(each))
        else:
            yield each


def _list_words(arguments: tuple[Any, ...], name_of: Callable[[Any], str | None]) -> str:
    first = type_words(arguments[0], name_of)
    if arguments[-1] is Ellipsis:
        return f"list of: {first}"
    if len({type_words(each, name_of) for each in arguments}) == 1:
        return f"list of {len(arguments)}: {first}"
    return "list of " + ", ".join(type_words(each, name_of) for each in arguments)


def _with_limits(words: str, metadata: Any) -> str:
    """Returns the words of a type that is limited by a part of its metadata."""
    parts = metadata.metadata if isinstance(metadata, pydantic.fields.FieldInfo) else [metadata]
    for part in parts:
        for name, phrase in _LIMITS.items():
            if hasattr(part, name):
                words += f", {phrase} {getattr(part, name):g}"
    lengths = {
        name: getattr(part, name) for part in parts for name in _LENGTHS if hasattr(part, name)
    }
    if len(set(lengths.values())) == 1 and len(lengths) == 2:
        return words.replace("list of", f"list of {lengths['min_length']}", 1)
    if lengths.get("min_length") == 1:
        return f"non-empty {words}"
    return words


def _any_of(words: list[str]) -> str:
    words = list(dict.fromkeys(words))
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def default_words(field: Any) -> str:
    """Returns a field's default as Markdown; an empty text if it must be given."""
    if field.is_required():
        return ""
    default = field.get_default(call_default_factory=True)
    if isinstance(default, pydantic.BaseModel):
        return "its defaults"
    return f"`{_plain_yaml(default)}`"


def _plain_yaml(value: Any) -> str:
    match value:
        case str():
            return value
        case pydantic.BaseModel():
            return _plain_yaml(value.model_dump(exclude_unset=True))
        case Mapping():
            return (
                "{" + ", ".join(f"{key}: {_plain_yaml(each)}" for key, each in value.items()) + "}"
            )
        case tuple() | list():
            return "[" + ", ".join(map(_plain_yaml, value)) + "]"
        case Path():
            return str(value)
    return json.dumps(value)


def unit(name: str) -> str:
    """Returns the unit that a field's name gives, such as "m" of `within_m`; "" for none."""
    return next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), "")
