"""Generates, imports and checks models: `python -m fleet_tools.assets import MESH`."""

import sys
from collections.abc import Sequence

from fleet_tools.assets.generation import GenerateOptions, generate
from fleet_tools.studio.checking.program import CheckOptions, check_model
from fleet_tools.studio.importing.program import ImportOptions, import_model
from fleet_tools.utils import cli

PROGRAM = cli.Program(
    "assets",
    {
        "generate": cli.Command(GenerateOptions, generate),
        "import": cli.Command(ImportOptions, import_model),
        "check": cli.Command(CheckOptions, check_model),
    },
    "Generates tools and objects, makes one of a mesh, or checks one. Without a command it "
    "generates.",
)


def main(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Runs the program; without a command it generates, as generated files say.

    Args:
        arguments: Arguments; those of the command line if None.
        prog: Name of the program in messages; `python -m fleet_tools.assets` if None.

    Returns:
        The exit code.
    """
    return PROGRAM.main(with_command(sys.argv[1:] if arguments is None else arguments), prog)


def with_command(arguments: Sequence[str]) -> list[str]:
    """Returns arguments that begin with a command; without one they are of "generate"."""
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        return ["generate", *arguments]
    return list(arguments)


if __name__ == "__main__":
    sys.exit(main())
