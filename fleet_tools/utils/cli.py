"""Shared parts of programs: options, exit codes and reports.

A program is a class of options, from which tyro makes its parser, and a function that does the
work. It exits with 0 if all went well, 1 if the work was done but not all is well, 2 if it could
not begin, and 130 after Ctrl-C.
"""

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import pydantic
from tyro.conf import arg

from fleet_tools.config.options import OptionGroup
from fleet_tools.errors import ConfigError, DiskError, known_errors, shown
from fleet_tools.utils.disk_errors import disk_error
from fleet_tools.utils.libraries import missing_library
from fleet_tools.utils.option_parser import parse, union_of

OK, FAILED, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130


class Options(OptionGroup):
    """Base of a program's options; its docstring is the program's description."""

    _command_line: str = pydantic.PrivateAttr(default="")

    json_output: Annotated[bool, arg(name="json")] = False
    """Print one JSON object on stdout, and nothing else."""
    quiet: bool = False
    """Print neither progress nor summary."""

    @property
    def command_line(self) -> str:
        """The command line from which the options were parsed."""
        return self._command_line

    def report(self, summary: Mapping[str, Any], text: Callable[[], str]) -> None:
        """Prints a summary on stdout: as JSON, as text, or not at all.

        Args:
            summary: Plain JSON data.
            text: Returns the same for people.
        """
        if self.json_output:
            print(json.dumps(summary))
        elif not self.quiet:
            print(text())


O = TypeVar("O", bound=Options)  # noqa: E741


@dataclass(frozen=True)
class Command(Generic[O]):
    """A class of options, and the function that uses them.

    Attributes:
        options: Class of the options.
        work: Does the work, and returns the exit code.
    """

    options: type[O]
    work: Callable[[O], int]


@dataclass(frozen=True)
class Program:
    """A program: `python -m fleet_tools.NAME`, or `fleet-tools NAME`.

    Attributes:
        name: Name of its module within the package.
        command: What it does; or several commands by name, of which the first argument names one.
        description: Description of several commands.
        launcher: Start of its command line, directly before the name.
    """

    name: str
    command: Command[Any] | Mapping[str, Command[Any]]
    description: str = ""
    launcher: str = "python -m fleet_tools."

    @property
    def options(self) -> Any:
        """Class of its options, or the union of its commands' options."""
        if isinstance(self.command, Command):
            return self.command.options
        classes = {name: command.options for name, command in self.command.items()}
        return union_of(classes, self.description)

    def main(self, arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
        """Parses the arguments, does the work, and reports errors in one message on stderr.

        Args:
            arguments: Arguments; the command line's if None.
            prog: Name of the program in messages; launcher and name if None.

        Returns:
            The exit code.

        Raises:
            SystemExit: The arguments are not valid, or ask for help.
        """
        own_prog = f"{self.launcher}{self.name}"
        given = sys.argv[1:] if arguments is None else list(arguments)

        def work() -> int:
            _check_encoding(given)
            options = parse(self.options, given, prog or own_prog)
            options._command_line = f"{own_prog} {shlex.join(given)}"
            command = self.command
            if not isinstance(command, Command):
                command = next(each for each in command.values() if type(options) is each.options)
            return command.work(options)

        return _reported(work, prog or own_prog)


def _check_encoding(arguments: Sequence[str]) -> None:
    """Raises a `ConfigError` where a name is not UTF-8, which neither Drake nor JSON can take."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise ConfigError(
                f"The argument {shown(argument)} is not UTF-8. Rename the file or folder."
            ) from None


def _reported(work: Callable[[], int], prog: str) -> int:
    try:
        code = work()
        sys.stdout.flush()
        return code
    except known_errors() as error:  # a disk or a cluster is lost, or the usage is bad
        return _failed(prog, error, FAILED if isinstance(error, OSError) else BAD_USAGE)
    except ImportError as error:
        message = _missing_library(error)
        if message is None:
            raise
        return _failed(prog, message, BAD_USAGE)
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        return _failed(prog, disk_error(error), FAILED)
    except KeyboardInterrupt:
        return _failed(prog, "interrupted", INTERRUPTED)


def stopped(reason: BaseException | None) -> int:
    """Reports on stderr that the work ended early and can be resumed; returns the exit code.

    Args:
        reason: An error of the disk, or `LostClusterError`; anything else means Ctrl-C.
    """
    failed = isinstance(reason, OSError)
    cause = str(disk_error(reason)) if failed else "interrupted"
    print(f"Stopped: {cause.rstrip('.')}. The same command resumes it.", file=sys.stderr)
    return FAILED if failed else INTERRUPTED


def _missing_library(error: ImportError) -> str | None:
    """Returns the message about the library whose absence is an error's cause; None for defects."""
    module = (error.name or "").partition(".")[0]
    if module == "pydrake":
        # Drake is installed with the package: what its own import says is what the machine lacks.
        works = "pydrake.common" in sys.modules
        return None if works else missing_library(module, reason=str(error))
    return missing_library(module) if isinstance(error, ModuleNotFoundError) else None


def _failed(prog: str, message: object, code: int) -> int:
    if isinstance(message, DiskError):
        message = f"{message}. Finished work is stored; run the same command again to continue."
    print(f"{prog}: {message}", file=sys.stderr)
    return code
