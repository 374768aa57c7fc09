"""Starts a Blender server: `python -m fleet_tools.blender --python BPY_ENV/bin/python`.

All other options are the server's; see `--help` of both.
"""

import argparse
import os
import sys
from pathlib import Path

from fleet_tools.utils.cli import BAD_USAGE

SERVER = Path(__file__).with_name("server.py")
VARIABLE = "FLEET_TOOLS_BPY_PYTHON"


def main(arguments: list[str] | None = None) -> int:
    """Becomes the server."""
    parser = argparse.ArgumentParser(
        prog="python -m fleet_tools.blender",
        description="Starts a Blender server with the Python of an environment that has bpy.",
        epilog=f"All other options are the server's: PYTHON {SERVER} --help",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--python",
        metavar="FILE",
        default=os.environ.get(VARIABLE, sys.executable),
        help=f"with bpy (${VARIABLE}, or else this very Python)",
    )
    options, others = parser.parse_known_args(arguments)
    try:
        os.execv(options.python, [options.python, str(SERVER), *others])
    except OSError as error:
        print(f"{parser.prog}: {options.python} is no Python: {error}", file=sys.stderr)
        return BAD_USAGE


if __name__ == "__main__":
    sys.exit(main())
