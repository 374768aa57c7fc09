"""Generates, imports and checks models: `python -m fleet_tools.assets import MESH`."""

import sys
from collections.abc import Sequence

from fleet_tools.assets.checking.program import CheckOptions, check_model
from fleet_tools.assets.generation import GenerateOptions, generate
from fleet_tools.assets.importing.program import ImportOptions, import_model
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
    """Runs the program; without a command it generates, as in version 0.1.

    Args:
        arguments: Arguments; those of the command line if None.
        prog: Name of the program in messages; `python -m fleet_tools.assets` if None.

    Returns:
        The exit code.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or (given[0].startswith("-") and given[0] not in ("-h", "--help")):
        given = ["generate", *given]
    return PROGRAM.main(given, prog)


if __name__ == "__main__":
    sys.exit(main())
