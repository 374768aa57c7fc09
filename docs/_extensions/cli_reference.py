"""The reference of the programs as Markdown, from their classes of options."""

import inspect
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

from model_docs import default_words, description, escape, field_types, type_words
from tyro.conf import Positional
from tyro.constructors import PrimitiveConstructorSpec

from fleet_tools.__main__ import PROGRAMS, load
from fleet_tools.config.options import OptionGroup
from fleet_tools.utils import cli


@dataclass(frozen=True)
class Option:
    """An option of a program.

    Attributes:
        names: Its spellings, such as ("--output",), or ("DATASET",) of an argument
            without a name.
        value: Placeholder of its value; "" of a flag.
        facts: Type and default, as Markdown.
        text: Description, as Markdown.
    """

    names: tuple[str, ...]
    value: str
    facts: str
    text: str


def programs() -> dict[str, cli.Program]:
    """Returns all programs by name."""
    return {name: load(name).PROGRAM for name in PROGRAMS}


def reference(programs: Mapping[str, cli.Program]) -> str:
    """Returns the Markdown of all programs."""
    common = "\n\n".join(option_text(option) for option in command_options(cli.Options))
    parts = ["## Options of every program", common]
    parts += [program_section(name, program) for name, program in programs.items()]
    return "\n\n".join(parts)


def program_section(name: str, program: cli.Program) -> str:
    """Returns the Markdown of a program and its commands."""
    same = f"The same as `{program.launcher}{program.name}`."
    if isinstance(program.command, cli.Command):
        return f"## {name}\n\n{command_text(name, program.command.options)}\n\n{same}"
    commands = [
        f"### {name} {each}\n\n{command_text(f'{name} {each}', command.options)}"
        for each, command in program.command.items()
    ]
    return "\n\n".join([f"## {name}", escape(program.description), same, *commands])


def command_text(name: str, options: type[cli.Options]) -> str:
    """Returns description, exit codes and options of a command."""
    text, _, codes = description(options).partition("\nExit codes:\n")
    parts = [paragraphs(text), f"```{{program}} fleet-tools {name}\n```"]
    common = set(cli.Options.model_fields)
    parts += [option_text(option) for option in command_options(options, without=common)]
    if codes:
        parts += ["Exit codes:", exit_codes(codes)]
    return "\n\n".join(parts)


def paragraphs(text: str) -> str:
    """Returns a docstring's paragraphs as Markdown; a command line becomes a block of code."""
    return "\n\n".join(
        f"```bash\n{part}\n```" if part.startswith("python -m ") else escape(part)
        for part in text.strip().split("\n\n")
    )


def exit_codes(section: str) -> str:
    """Returns lines such as "0: all went well" as a list."""
    entries = re.split(r"\n(?=\d+:)", section.strip())
    return "\n".join(f"- {escape(' '.join(entry.split()))}" for entry in entries)


def option_text(option: Option) -> str:
    """Returns the Markdown of an option."""
    value = f" {option.value}" if option.value else ""
    signature = ", ".join(f"{name}{value}" for name in option.names)
    body = " ".join(part for part in (option.text, option.facts) if part)
    return f"```{{option}} {signature}\n{body}\n```"


def command_options(group: type[OptionGroup], without: Collection[str] = ()) -> Iterator[Option]:
    """Yields the options of a class in its order, options of nested groups in their place.

    Args:
        group: The class.
        without: Fields that are left out.
    """
    types = field_types(group)
    for name, field in group.model_fields.items():
        if name in without:
            continue
        nested = _nested_group(types[name])
        if nested is not None:
            yield from command_options(nested)
            continue
        metadata = _metadata(types[name])
        positional = get_args(Positional[int])[1] in metadata
        spelled = _last(metadata, "name") or name.replace("_", "-")
        flag = field.annotation is bool
        value = "" if flag else _last(metadata, "metavar") or name.upper()
        names = (value,) if positional else (f"--{spelled}",)
        yield Option(
            names=names,
            value="" if positional else value,
            facts=_facts(types[name], field, flag),
            text=escape(" ".join((field.description or "").split())),
        )


def _facts(annotation: Any, field: Any, flag: bool) -> str:
    if flag:
        return ""
    words = type_words(_without_none(annotation), _notation)
    if field.is_required():
        return f"*Required; {words}.*"
    default = field.get_default(call_default_factory=True)
    if default not in (None, ()):
        return f"*{_sentence(words)}; default:* {default_words(field)}"
    return "" if words in ("text", "path") else f"*{_sentence(words)}.*"


def _notation(annotation: Any) -> str | None:
    """Returns the placeholder of a type that is read in a notation of its own."""
    metadata = getattr(annotation, "__metadata__", ())
    notations = [each.metavar for each in metadata if isinstance(each, PrimitiveConstructorSpec)]
    return f"`{notations[0]}`" if notations else None


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _without_none(annotation: Any) -> Any:
    arguments = [each for each in get_args(annotation) if each is not type(None)]
    return (
        arguments[0] if type(None) in get_args(annotation) and len(arguments) == 1 else annotation
    )


def _nested_group(annotation: Any) -> type[OptionGroup] | None:
    inner = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return inner if inspect.isclass(inner) and issubclass(inner, OptionGroup) else None


def _metadata(annotation: Any) -> list[Any]:
    """Returns the metadata of an annotation and of the annotations inside it."""
    own = list(getattr(annotation, "__metadata__", ()))
    return own + [each for inner in get_args(annotation)[:1] for each in _metadata(inner)]


def _last(metadata: list[Any], attribute: str) -> str | None:
    given = [getattr(each, attribute, None) for each in metadata]
    return next((each for each in given if isinstance(each, str)), None)
