"""Command lines parsed into option groups, by tyro."""

import inspect
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import pydantic
import tyro
from tyro.conf import arg
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from fleet_tools.config.options import OptionGroup
from fleet_tools.config.values import Count, describe_errors

G = TypeVar("G", bound=OptionGroup)
M = TypeVar("M")
_ArgConfig = type(arg())


def parse(options: type[G], arguments: Sequence[str] | None, prog: str) -> G:
    """Parses a command line.

    Args:
        options: Class of the options, or a union as `union_of` returns it.
        arguments: Arguments; the command line's if None.
        prog: Name of the program in messages.

    Raises:
        SystemExit: The arguments are not valid, or ask for help.
    """
    given = sys.argv[1:] if arguments is None else arguments
    try:
        with _REGISTRY:
            return tyro.cli(
                _as_listing(options) if list(given[:1]) in (["-h"], ["--help"]) else options,
                prog=prog,
                args=arguments,
                description=_description(options),
                config=(
                    tyro.conf.FlagCreatePairsOff,
                    tyro.conf.DisallowNone,
                    tyro.conf.OmitArgPrefixes,
                    tyro.conf.OmitSubcommandPrefixes,
                ),
            )
    except _InvalidOptionsError as error:
        print(f"{prog}: {error}\n`{prog} --help` describes the options.", file=sys.stderr)
        raise SystemExit(2) from None


def union_of(commands: Mapping[str, Any], description: str) -> Any:
    """Returns the type of a command line whose first argument names a command.

    Args:
        commands: Class of the options of each command, or another union.
        description: Description of all commands.
    """
    return _union(_Description(description, tuple(commands.items())), _description)


@dataclass(frozen=True)
class _Description:
    """Description of a union and its commands, in the metadata of its annotation."""

    text: str
    commands: tuple[tuple[str, Any], ...]


def _union(described: _Description, text_of: Callable[[Any], str]) -> Any:
    alternatives = [
        Annotated[options, tyro.conf.subcommand(name, description=text_of(options))]
        for name, options in described.commands
    ]
    return Annotated[Union[tuple(alternatives)], described]  # noqa: UP007


def _as_listing(options: Any) -> Any:
    """Returns options whose help has one paragraph for each command."""
    described = _metadata(options, _Description)
    if not described:
        return options
    return _union(described[0], lambda command: _description(command).partition("\n\n")[0])


def _description(options: Any) -> str:
    described = _metadata(options, _Description)
    text = inspect.cleandoc(described[0].text if described else options.__doc__ or "")
    # The exit codes, a line each for whoever reads the class, are one paragraph of the help.
    text, heading, codes = text.partition("\nExit codes:\n")
    if not heading:
        return text
    listing = f"Exit codes: {' '.join(codes.split())}"
    width = shutil.get_terminal_size().columns
    # tyro joins lines, except those that begin with a space.
    return f"{text}\n{textwrap.fill(listing, width, subsequent_indent='  ')}"


_WIDEST = 24
"""Longest option, with its value, beside which tyro writes its help in the same line."""


def _compact(name: str, annotation: Any, text: str) -> tuple[str | None, str]:
    """Returns the metavar and the help of an option, so that both fit into one line.

    The metavar is None where tyro's own is short.
    """
    if len(_metadata(annotation, object)) > len(_metadata(annotation, _ArgConfig)):
        return None, text  # it has a notation of its own, or may be repeated
    inner = next(
        (each for each in _alternatives(_bare(annotation)) if each is not NoneType), annotation
    )
    spelled = len(f"--{name} ")
    if get_origin(inner) is tuple and get_args(inner)[1:] == (...,):
        item = get_args(inner)[0]
        own = [each.metavar for each in _metadata(item, PrimitiveConstructorSpec)]
        long, short = _TYPE_NAMES.get(_bare(item), ("VALUE", "V"))
        fits = spelled + len(f"{long} ...") <= _WIDEST
        return f"{own[0]} ..." if own else f"{long} ..." if fits else f"{short}...", text
    if get_origin(inner) is Literal:
        choices = list(map(str, get_args(inner)))
        if spelled + len(",".join(choices)) + 2 > _WIDEST:
            listing = f"{', '.join(choices[:-1])} or {choices[-1]}"
            return "NAME", f"{text} One of {listing}."
    long, short = _TYPE_NAMES.get(_bare(inner), ("", ""))
    return short if spelled + len(long) > _WIDEST else None, text


_TYPE_NAMES: Mapping[Any, tuple[str, str]] = {
    Path: ("PATH", "PATH"),
    str: ("STR", "STR"),
    int: ("INT", "N"),
    float: ("FLOAT", "X"),
}
"""By type, how its values are called, and in short."""


def _bare(annotation: Any) -> Any:
    """Returns a type without its metadata."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    is_union = get_origin(annotation) in (Union, UnionType)
    return get_args(annotation) if is_union else (annotation,)


def _metadata(annotation: Any, kind: type[M]) -> list[M]:
    return [each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, kind)]


_REGISTRY = ConstructorRegistry()


@_REGISTRY.struct_rule
def _option_group(info: StructTypeInfo) -> StructConstructorSpec | None:
    """Makes the options of a group: help from attribute docstrings, one-line error messages."""
    group = info.type
    if not (isinstance(group, type) and issubclass(group, OptionGroup)):
        return None
    types = get_type_hints(group, include_extras=True)
    fields = []
    for name, field in group.model_fields.items():
        if isinstance(info.default, group):
            default = getattr(info.default, name)
        elif field.is_required():
            default = tyro.MISSING_NONPROP
        else:
            default = field.get_default(call_default_factory=True)
        plain = _plain(types[name])
        metavar, text = _compact(name, plain, " ".join((field.description or "").split()))
        own = any(getattr(each, "metavar", None) for each in _metadata(plain, _ArgConfig))
        configuration = arg(
            metavar=None if own else metavar,
            # The help says what happens without the option, if its default is one of these.
            help_behavior_hint="" if default in (None, ()) or default is False else None,
        )
        fields.append(
            StructFieldSpec(
                name=name,
                type=Annotated[plain, configuration],  # pyright: ignore[reportArgumentType]
                default=default,
                helptext=text,
            )
        )
    return StructConstructorSpec(instantiate=_constructor(group), fields=tuple(fields))


def _plain(annotation: Any) -> Any:
    """Removes the metadata of pydantic, which tyro would show in its error messages."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        kept = [
            each
            for each in annotation.__metadata__
            if type(each).__module__.partition(".")[0] not in ("annotated_types", "pydantic")
        ]
        inner = _plain(arguments[0])
        return Annotated[(inner, *kept)] if kept else inner
    if origin in (Union, UnionType):
        return Union[tuple(map(_plain, arguments))]  # noqa: UP007
    return annotation


class _InvalidOptionsError(Exception):
    """Values of options that do not fit; tyro passes it on, unlike a ValueError."""


def _constructor(group: type[OptionGroup]) -> Callable[..., OptionGroup]:
    def construct(**values: Any) -> OptionGroup:
        try:
            return group.model_validate(values)
        except pydantic.ValidationError as error:
            lines = describe_errors(group, error)
            described = (_with_option_name(line, values) for line in lines)
            raise _InvalidOptionsError("\n".join(described)) from None

    construct.__doc__ = group.__doc__
    return construct


def _with_option_name(line: str, values: Mapping[str, Any]) -> str:
    field, _, reason = line.partition(": ")
    return f"--{field.replace('_', '-')}: {reason}" if field in values else line


def notation(
    read: Callable[[str], Any], metavar: str, write: Callable[[Any], str] = str
) -> PrimitiveConstructorSpec[Any]:
    """Returns how an option with a notation of its own is read from one argument.

    Args:
        read: Reads a value, or raises a ValueError.
        metavar: The notation in the help.
        write: Returns the notation of a default.
    """
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda texts: read(texts[0]),
        is_instance=lambda _: True,  # no option has an alternative of another type
        str_from_instance=lambda value: [write(value)],
    )


def key_value(text: str) -> tuple[str, Any]:
    """Reads KEY=VALUE; the value is JSON, or else a string.

    Raises:
        ValueError: The text has another form.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"expected KEY=VALUE; given: {text}")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):
        return key, value


KeyValue = Annotated[
    tuple[str, Any],
    notation(key_value, "KEY=VALUE", lambda given: f"{given[0]}={json.dumps(given[1])}"),
]
"""An argument KEY=VALUE, see `key_value`."""


def _parse_size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    if not (width.isdecimal() and height.isdecimal()):
        raise ValueError(f"expected WIDTHxHEIGHT, such as 640x480; given: {text}")
    return int(width), int(height)


Size = Annotated[
    tuple[Count, Count],
    notation(_parse_size, "WxH", lambda size: f"{size[0]}x{size[1]}"),
]
"""An option WIDTHxHEIGHT, such as 640x480."""
