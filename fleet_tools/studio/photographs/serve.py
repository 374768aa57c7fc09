"""Renders glTF scenes with Blender for Drake's glTF render client, over HTTP.

This program runs in an environment that has `bpy` and not this package: start this file with that
environment's Python, or let `python -m fleet_tools.blender` do so. Apart from Blender it needs only
the standard library.
"""

import argparse
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Draw = Callable[[dict[str, Any], dict[str, float]], bytes]
"""Function that returns a scene's image as PNG, see `blender_pool.BlenderPool.draw`."""

MISSING_BPY = """Blender cannot be imported by {python}:
  {error}
Install it into an environment of its own, because it needs its own version of numpy:
  python3.11 -m venv bpy-env && bpy-env/bin/pip install bpy==5.0.1
On Debian and Ubuntu its import also needs
  apt-get install -y libx11-6 libxrender1 libxfixes3 libxi6 libxkbcommon0 libsm6 libice6 libgl1
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program; see `--help`."""
    options = _parser().parse_args(arguments)
    child = subprocess.run([sys.executable, "-c", "import bpy"], capture_output=True, text=True)
    if child.returncode != 0:
        error = (child.stderr.strip() or f"status {child.returncode}").splitlines()[-1]
        print(MISSING_BPY.format(python=sys.executable, error=error), end="", file=sys.stderr)
        return 2
    # This file is run by its path, in an environment without this package.
    from blender_pool import BlenderPool, DrawingError  # pyright: ignore[reportMissingImports]

    for ending in (signal.SIGINT, signal.SIGTERM):  # shells let background jobs ignore SIGINT
        signal.signal(ending, signal.default_int_handler)
    names = ("workers", "samples", "roughness", "seconds", "verbose")
    settings = {name: getattr(options, name) for name in names}
    try:
        with contextlib.closing(BlenderPool(**settings)) as pool:
            return _serve(options, pool.draw, pool.health)
    except DrawingError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


def _serve(options: argparse.Namespace, draw: Draw, health: Mapping[str, Any]) -> int:
    sys.path.append(str(Path(__file__).resolve().parents[2] / "utils"))
    from render_requests import make_server  # pyright: ignore[reportMissingImports]

    max_bytes = options.max_megabytes * 10**6
    try:
        server = make_server(options.host, options.port, draw, health, max_bytes)
    except OSError as error:
        print(f"Cannot listen at {options.host}:{options.port}: {error}", file=sys.stderr)
        return 2
    with server:
        host, port = server.address
        print(f"Ready at http://{host}:{port}: {json.dumps(health)}", flush=True)
        try:
            server.serve_forever()
        except OSError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fleet_tools.blender",
        description="Renders glTF scenes with Blender for Drake's glTF render client, over HTTP.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address; 127.0.0.1 serves this machine only")
    add("--port", type=int, default=8000, help="port; 0 takes a free one")
    add("--workers", type=_count, default=1, help="number of images drawn at the same time")
    add("--samples", type=_count, default=16, help="light paths per pixel")
    add("--roughness", type=_ratio, default=0.5, help="of surfaces: 0 mirrors, 1 is matte")
    add("--seconds", type=_count, default=600, help="time limit of an image, s")
    add("--max-megabytes", type=_count, default=256, help="largest size of a request")
    add("--verbose", action="store_true", help="pass on Blender's own output")
    return parser


def _count(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; given: {number}")
    return number


def _ratio(text: str) -> float:
    if not 0.0 <= (number := float(text)) <= 1.0:
        raise argparse.ArgumentTypeError(f"must lie in [0, 1]; given: {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())
