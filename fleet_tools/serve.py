"""Serves a policy over a socket: `python -m fleet_tools.serve runs/hammer/best.safetensors`.

Every `--policy` takes the printed address, such as ws://127.0.0.1:8000.
"""

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pydantic
from tyro.conf import Positional

from fleet_tools.config.values import Count
from fleet_tools.errors import ConfigError
from fleet_tools.utils import cli

if TYPE_CHECKING:
    from fleet_tools.policies.conversation import Served


class ServeOptions(cli.Options):
    """Serves a checkpoint to simulations and robots, until Ctrl-C.

    It listens on this machine alone. Other machines reach it through a reverse proxy that speaks
    TLS, with a token in a file or in FLEET_TOOLS_POLICY_TOKEN, or through an SSH tunnel
    (docs/tutorials/serving.md). --json prints the address and the policy when it is ready.

    Exit codes:
    0: it was ended by Ctrl-C or SIGTERM.
    1: its socket no longer listens, for a reason that it prints.
    2: it cannot begin.
    """

    checkpoint: Positional[Path]
    """Checkpoint to serve; or the folder of a policy of LeRobot's, in an environment of its own."""
    header: Path | None = None
    """What a policy of LeRobot's observes: meta/fleet_tools.json of the export that it learned."""
    port: Annotated[int, pydantic.Field(ge=0, lt=2**16)] = 8000
    """Port to listen on; 0 takes a free one."""
    token_file: Path | None = None
    """File with the token that clients must present, instead of FLEET_TOOLS_POLICY_TOKEN."""
    max_connections: Count = 32
    """Largest number of connections at the same time; each holds a network of its own."""


def _serve(options: ServeOptions) -> int:
    from fleet_tools.policies.policy_server import PolicyServer
    from fleet_tools.policies.server_access import read_token

    token = read_token(options.token_file)
    policy = _served(options)
    # Shells let background jobs ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with PolicyServer(policy, options.port, token, options.max_connections) as server:
            summary = {"url": server.url, "hello": policy.hello.model_dump(mode="json")}
            options.report(summary, lambda: f"{policy.hello.policy} is served at {server.url}")
            sys.stdout.flush()
            server.serve_forever()
    except KeyboardInterrupt:
        pass
    return cli.OK


def _served(options: ServeOptions) -> "Served":
    if options.checkpoint.is_dir():
        from fleet_tools.baselines.policies.lerobot import served_lerobot

        return served_lerobot(options.checkpoint, options.header)
    if options.header is not None:
        raise ConfigError(
            f"{options.checkpoint} says itself what it observes. Leave --header out, which is for "
            "folders of LeRobot's policies."
        )
    from fleet_tools.baselines.policies.policy import served_checkpoint

    return served_checkpoint(options.checkpoint)


PROGRAM = cli.Program("serve", cli.Command(ServeOptions, _serve))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
