"""What the programs `python -m fleet_tools.X` share.

They exit with 0 if all went well, 1 if the work was done but not well, 2 if it could not be begun,
and 130 after Ctrl-C.
"""

import argparse
import os
import sys
from collections.abc import Callable

from fleet_tools.errors import FleetToolsError

OK, NOT_WELL, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130


def argument_parser(name: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """Returns a parser with the options of every program.

    Args:
        name: Of the module.
        description: One sentence.
        epilog: The exit codes' meaning.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {name}", description=description, epilog=epilog, allow_abbrev=False
    )
    add_output_options(parser)
    return parser


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Gives a parser, such as a command's within a program, the options of every program."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object on stdout, nothing else"
    )
    parser.add_argument("--quiet", action="store_true", help="print neither progress nor summary")


def positive_int(text: str) -> int:
    """An argument that counts something."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; given: {number}")
    return number


def seed(text: str) -> int:
    """An argument that seeds a generator."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"must not be negative; given: {number}")
    return number


def run(
    parser: argparse.ArgumentParser,
    work: Callable[[argparse.Namespace], int],
    arguments: list[str] | None,
) -> int:
    """Parses the arguments, does the work, and says what went wrong in one message.

    Args:
        parser: Of the program.
        work: Returns the exit code.
        arguments: Those of the command line if None.

    Returns:
        The exit code.
    """
    parsed = parser.parse_args(arguments)
    try:
        code = work(parsed)
        sys.stdout.flush()
        return code
    except FleetToolsError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return BAD_USAGE
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOT_WELL
    except OSError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return NOT_WELL
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return INTERRUPTED
