"""What the programs `python -m fleet_tools.X` share.

They exit with 0 if all went well, 1 if the work was done but not well, 2 if it could not be begun,
and 130 after Ctrl-C.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Callable
from typing import Any

from fleet_tools.errors import FleetToolsError, UnknownNameError

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


def command_parser(name: str, description: str, epilog: str) -> tuple[argparse.ArgumentParser, Any]:
    """Returns a parser of a program with commands, and where `add_command` adds them.

    Args:
        name, description, epilog: As for `argument_parser`.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {name}", description=description, epilog=epilog, allow_abbrev=False
    )
    return parser, parser.add_subparsers(title="commands", required=True, metavar="COMMAND")


def add_command(
    commands: Any, name: str, work: Callable[[argparse.Namespace], int], description: str
) -> argparse.ArgumentParser:
    """Adds a command; `run_command` finds what it does."""
    parser = commands.add_parser(name, help=description, description=description)
    parser.set_defaults(command=work)
    add_output_options(parser)
    return parser


def run_command(options: argparse.Namespace) -> int:
    """Does the work of the command that was given; what `run` is to do."""
    return options.command(options)


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Gives a parser, such as a command's within a program, the options of every program."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object on stdout, nothing else"
    )
    parser.add_argument("--quiet", action="store_true", help="print neither progress nor summary")


def add_task_options(parser: argparse.ArgumentParser) -> "argparse._MutuallyExclusiveGroup":
    """Gives a parser the two ways to name a task, of which one must be used; see `chosen_task`.

    Returns:
        Their group, for another way.
    """
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--tool", metavar="NAME", help="the package's task for this tool")
    which.add_argument("--task", metavar="TASK", help="a task's name, or the path of your own")
    return which


def add_policy_option(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Gives a parser the way to say who acts; `fleet_tools.policies.sources.find` finds it.

    Args:
        parser: Of a program.
        default: It must be said if None.
    """
    parser.add_argument(
        "--policy", metavar="POLICY", default=default, required=default is None,
        help="expert, disturbed_expert, random or zero; module:factory, where factory(env) returns "
        "an object with reset() and act(observation); or the path of a checkpoint"
        + (f" ({default})" if default else ""),
    )  # fmt: skip


def add_worker_options(
    parser: argparse.ArgumentParser,
    timeout_s: float = 300.0,
    late: str = "an episode may take before its worker is killed and it is begun again",
) -> None:
    """Gives a parser what it takes to work in parallel; see `worker_keywords`.

    Args:
        parser: Of the program.
        timeout_s: What is too long, by default.
        late: Goes on after "what", as a line of help.
    """
    parser.add_argument(
        "--workers", metavar="N", type=count,
        help="processes that work side by side, one core each (as many as fit the machine); "
        "0 works in this process",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=positive_float, default=timeout_s,
        help=f"what {late} ({timeout_s:g})",
    )  # fmt: skip
    parser.add_argument(
        "--ray-address", metavar="ADDRESS",
        help="of a running Ray cluster, such as auto or HOST:PORT, whose machines have the same "
        "packages installed and see the same files",
    )  # fmt: skip


def worker_keywords(options: argparse.Namespace) -> dict[str, Any]:
    """Returns what the options say of workers, as keywords of `parallel.workers.run`."""
    from fleet_tools.parallel import workers

    number = workers.default_count() if options.workers is None else options.workers
    return {"count": number, "timeout_s": options.timeout, "address": options.ray_address}


def chosen_task(options: argparse.Namespace) -> str:
    """Returns the name or path of the task that was chosen.

    Raises:
        UnknownNameError: There is no such tool.
    """
    from fleet_tools.config.tasks import task_names

    if options.tool is None:
        return options.task
    if options.tool not in task_names():
        remedy = "A task of your own is given by --task and the path of its YAML."
        raise UnknownNameError("tool", options.tool, task_names(), remedy)
    return options.tool


def count(text: str) -> int:
    """An argument that counts something, maybe nothing."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"must not be negative; given: {number}")
    return number


def keyword(text: str) -> tuple[str, Any]:
    """An argument KEY=VALUE; the value is JSON, or else a string."""
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"must be KEY=VALUE; given: {text}")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def positive_float(text: str) -> float:
    """An argument that measures something."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be positive and finite; given: {text}")
    return number


def positive_int(text: str) -> int:
    """An argument that counts something."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; given: {number}")
    return number


seed = count
"""An argument that seeds a generator."""


def stopped(reason: BaseException | None) -> int:
    """Says on stderr why work ended early, and that it can go on; returns the exit code.

    Args:
        reason: The disk's error; anything else is Ctrl-C.
    """
    disk = isinstance(reason, OSError)
    said = reason if disk else "interrupted"
    print(f"Stopped: {said}. The same command goes on from here.", file=sys.stderr)
    return NOT_WELL if disk else INTERRUPTED


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
