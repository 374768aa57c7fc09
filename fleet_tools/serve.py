"""Serves a policy over a socket: `python -m fleet_tools.serve runs/hammer/best.safetensors`.

Every `--policy` takes the printed address, such as ws://127.0.0.1:8000.
"""

import contextlib
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
    """Serves a policy to simulations and robots, until Ctrl-C.

    It listens on this machine alone. Other machines reach it through a reverse proxy that speaks
    TLS, with a token in a file or in FLEET_TOOLS_POLICY_TOKEN, or through an SSH tunnel
    (docs/tutorials/serving.md). --json prints the address and the policy when it is ready.

    Exit codes:
    0: it was ended by Ctrl-C or SIGTERM.
    2: it cannot begin.
    """

    policy: Positional[str]
    """Checkpoint to serve; or the folder of a policy of LeRobot, in LeRobot's environment; or
    module:factory, whose code then sees what this process sees."""
    tool: str | None = None
    """Task of a module:factory, by its tool."""
    header: Path | None = None
    """Observations of a policy of LeRobot: meta/fleet_tools.json of the export that it was trained
    on."""
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
    with contextlib.redirect_stdout(sys.stderr):  # a policy's module may print
        policy = _served(options)
    # Shells let background jobs ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with PolicyServer(policy, options.port, token, options.max_connections) as server:
            summary = {"url": server.url, "hello": policy.hello.model_dump(mode="json")}
            options.report(summary, lambda: f"{policy.hello.policy} is served at {server.url}")
            sys.stdout.flush()
            with contextlib.redirect_stdout(sys.stderr):
                server.serve_forever()
    except KeyboardInterrupt:
        pass
    return cli.OK


def _served(options: ServeOptions) -> "Served":
    from fleet_tools.policies.sources import find_policy, is_factory

    factory, folder = is_factory(options.policy), Path(options.policy).is_dir()
    for given, fits, name, use in (
        (options.header, folder, "--header", "folders of LeRobot's policies"),
        (options.tool, factory, "--tool", "module:factory"),
    ):
        if given is not None and not fits:
            raise ConfigError(
                f"{options.policy} declares its own observations. Leave out {name}, which is for "
                f"{use}."
            )
    if folder:
        from fleet_tools.baselines.policies.lerobot import served_lerobot

        return served_lerobot(Path(options.policy), options.header)
    if factory:
        from fleet_tools.envs.recorded_env import interface_of
        from fleet_tools.envs.spec import EnvSpec
        from fleet_tools.policies.confined import served_source

        if options.tool is None:
            raise ConfigError(f"{options.policy} can act in any task. Choose one with --tool.")
        source = find_policy(options.policy)
        with contextlib.closing(EnvSpec.of(task=options.tool, **source.env_kwargs).make()) as env:
            return served_source(source, interface_of(env))
    from fleet_tools.baselines.policies.policy import served_checkpoint

    return served_checkpoint(Path(options.policy))


PROGRAM = cli.Program("serve", cli.Command(ServeOptions, _serve))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
