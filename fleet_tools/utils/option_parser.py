"""Command lines parsed into option groups, by tyro."""

import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import (
    Annotated,
    Any,
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
    described = _described(options)
    if described is None:
        return options
    return _union(described, lambda command: _description(command).partition("\n\n")[0])


def _description(options: Any) -> str:
    described = _described(options)
    return inspect.cleandoc(described.text if described else options.__doc__ or "")


def _described(options: Any) -> _Description | None:
    found = (x for x in getattr(options, "__metadata__", ()) if isinstance(x, _Description))
    return next(found, None)


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
        # The help says what happens without the option, if its default is one of these.
        hint = arg(help_behavior_hint="" if default in (None, ()) or default is False else None)
        fields.append(
            StructFieldSpec(
                name=name,
                type=Annotated[_plain(types[name]), hint],  # pyright: ignore[reportArgumentType]
                default=default,
                helptext=" ".join((field.description or "").split()),
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
