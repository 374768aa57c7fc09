"""Renders photographs' colours with Blender: `python -m fleet_tools.blender --python PYTHON`."""

import contextlib
import json
import os
import signal
import sys
from typing import Annotated

import pydantic

from fleet_tools.config.values import Count
from fleet_tools.errors import ConfigError
from fleet_tools.utils import cli

VARIABLE = "FLEET_TOOLS_BPY_PYTHON"


class BlenderOptions(cli.Options):
    """Renders glTF scenes with Blender for Drake's glTF render client, over HTTP, until Ctrl-C.

    Exit codes:
    0: it was ended by Ctrl-C or SIGTERM.
    2: Blender does not start, or it cannot listen.
    """

    python: str | None = None
    """Python that has bpy (default: $FLEET_TOOLS_BPY_PYTHON, or else the present Python)."""
    port: Annotated[int, pydantic.Field(ge=0, lt=2**16)] = 8000
    """Port of this machine; 0 takes a free one."""
    workers: Count = 1
    """Number of images drawn at the same time."""
    samples: Count = 16
    """Light paths per pixel."""
    max_megabytes: Count = 256
    """Largest size of a request."""
    verbose: bool = False
    """Pass on Blender's own output."""


def _serve(options: BlenderOptions) -> int:
    from fleet_tools.studio.photographs.blender_pool import BlenderPool
    from fleet_tools.studio.photographs.render_requests import RenderServer

    for ending in (signal.SIGINT, signal.SIGTERM):  # shells let background jobs ignore SIGINT
        signal.signal(ending, signal.default_int_handler)
    names = ("workers", "samples", "verbose")
    settings = {name: getattr(options, name) for name in names}
    python = options.python or os.environ.get(VARIABLE, sys.executable)
    with (
        contextlib.suppress(KeyboardInterrupt),
        contextlib.closing(BlenderPool(python, **settings)) as pool,
    ):
        max_bytes = options.max_megabytes * 10**6
        try:
            server = RenderServer(options.port, pool.draw, pool.health, max_bytes)
        except OSError as error:
            raise ConfigError(f"Cannot listen at port {options.port}: {error}") from error
        with server:
            url = f"http://127.0.0.1:{server.server_port}"
            print(f"Ready at {url}: {json.dumps(pool.health)}", flush=True)
            server.serve_forever()
    return cli.OK


PROGRAM = cli.Program("blender", cli.Command(BlenderOptions, _serve))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
