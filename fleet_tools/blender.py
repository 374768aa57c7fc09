"""Starts a Blender server: `python -m fleet_tools.blender --python BPY_ENV/bin/python`.

All other options are passed on to the server, which has a `--help` of its own.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fleet_tools.utils.cli import BAD_USAGE

SERVER = Path(__file__).parent / "studio" / "photographs" / "serve.py"
VARIABLE = "FLEET_TOOLS_BPY_PYTHON"


def main(
    arguments: Sequence[str] | None = None, prog: str = "python -m fleet_tools.blender"
) -> int:
    """Replaces this process by the server; returns an exit code only if that fails."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Starts a Blender server with the Python of an environment that has bpy.",
        epilog=f"All other options are passed on to the server: PYTHON {SERVER} --help",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--python",
        metavar="FILE",
        default=os.environ.get(VARIABLE, sys.executable),
        help=f"Python that has bpy (default: ${VARIABLE}, or else the present Python)",
    )
    options, others = parser.parse_known_args(arguments)
    try:
        os.execv(options.python, [options.python, str(SERVER), *others])
    except OSError as error:
        print(f"{prog}: {options.python} cannot be run as Python: {error}", file=sys.stderr)
        return BAD_USAGE


if __name__ == "__main__":
    sys.exit(main())
