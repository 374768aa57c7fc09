"""Command lines of the documentation, read by the parsers of the programs."""

import contextlib
import importlib
import io
import re
import shlex
from collections.abc import Iterator

from support.processes import ROOT

from fleet_tools.__main__ import PROGRAMS, load
from fleet_tools.assets.__main__ import with_command
from fleet_tools.utils.option_parser import parse

_SEPARATORS = {"&&", "||", "|", ";", "&", ">", ">>", "2>", "<"}
_PYTHON = ("python", "python3")


def commands(code: str) -> Iterator[list[str]]:
    """Yields the words of each command of a block that starts a program of the project."""
    for line in code.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="&|;<>")
        lexer.whitespace_split = True
        for words in _commands_of(list(lexer)):
            while words and re.match(r"[A-Z_]+=", words[0]):
                words = words[1:]
            if _is_ours(words):
                yield words


def _commands_of(words: list[str]) -> Iterator[list[str]]:
    command: list[str] = []
    for word in words:
        if word in _SEPARATORS:
            yield command
            command = []
        else:
            command.append(word)
    yield command


def _is_ours(words: list[str]) -> bool:
    match words:
        case ["fleet-tools", *_]:
            return True
        case [python, "-m", module, *_] if python in _PYTHON:
            return module.partition(".")[0] == "fleet_tools"
        case [python, file, *_] if python in _PYTHON:
            return file.endswith(".py") and (ROOT / file.partition("/")[0]).is_dir()
    return False


def is_program(words: list[str]) -> bool:
    """Whether a command starts a program of the package, rather than a script of the checkout."""
    return words[0] == "fleet-tools" or words[1] == "-m"


def problem(words: list[str]) -> str | None:
    """Returns why a command of the project cannot start, or None if it can."""
    match words:
        case ["fleet-tools", *arguments] | [_, "-m", "fleet_tools", *arguments]:
            return _problem_of_program(*arguments)
        case [_, "-m", module, *arguments]:
            return _problem_of_module(module, arguments)
        case [_, file, *_]:
            return None if (ROOT / file).is_file() else f"there is no {file}"
    return None


def _problem_of_program(program: str, *arguments: str) -> str | None:
    if program in ("completion", "--help", "-h", "--version"):
        return None
    if program not in PROGRAMS:
        return f"there is no program {program}"
    return _problem_of_module(load(program).__name__, list(arguments))


def _problem_of_module(module: str, arguments: list[str]) -> str | None:
    name = module.removesuffix(".__main__")
    with contextlib.suppress(ModuleNotFoundError):  # a package's program is in its `__main__`
        module = importlib.import_module(f"{name}.__main__").__name__
    program = importlib.import_module(module).PROGRAM
    if name == "fleet_tools.assets":
        arguments = with_command(arguments)
    message = io.StringIO()
    try:
        with contextlib.redirect_stderr(message), contextlib.redirect_stdout(message):
            parse(program.options, arguments, name)
    except SystemExit as stopped:
        return message.getvalue() if stopped.code else None
    return None
