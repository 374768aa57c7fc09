"""All programs under one name: `fleet-tools collect --tool hammer --episodes 20`.

fleet-tools PROGRAM ...         the same as `python -m fleet_tools.PROGRAM ...`
fleet-tools --version           the version of the package
fleet-tools completion SHELL    a completion script for bash, zsh or tcsh
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

import fleet_tools

PROGRAMS = {
    "collect": ("collect", "Collects demonstrations into a dataset."),
    "teleop": ("teleop", "Collects demonstrations by hand, in the browser."),
    "replay": ("replay", "Checks that a dataset is reproducible bit for bit."),
    "dataset": ("dataset.__main__", "Describes and exports datasets."),
    "view": ("view", "Shows episodes in the browser, or saves them as a recording or a video."),
    "photograph": ("photograph", "Photographs the episodes of a dataset with Blender."),
    "train": ("baselines.train", "Trains a policy by behaviour cloning."),
    "evaluate": ("evaluate", "Evaluates a policy by a protocol."),
    "serve": ("serve", "Serves a policy over a socket, to simulations and robots."),
    "leaderboard": ("leaderboard.__main__", "Checks and ranks results on one page."),
    "merge": ("baselines.merge", "Merges models into one."),
    "fleet": ("baselines.fleet", "Trains a fleet of robots in rounds of federated learning."),
    "sweep": ("baselines.sweep", "Trains fleets over a range of settings, and compares methods."),
    "barriers": ("baselines.barriers", "Measures loss barriers between the models of fleets."),
    "studies": ("baselines.studies", "Repeats the studies of merging methods on small networks."),
    "metaworld": ("baselines.metaworld.__main__", "Collects and evaluates in Meta-World's tasks."),
    "new-task": ("new_task", "Writes the folder of a task of your own, to begin with."),
    "label": ("label", "Labels a mesh by clicks in the browser."),
    "assets": ("assets.__main__", "Generates and imports models of tools and objects."),
    "doctor": ("doctor", "Checks what this machine can do."),
}
"""Module and summary of each program. `fleet_tools.blender` is left out: it passes its options on
to a server that runs in another environment."""

_SHELLS = ("bash", "zsh", "tcsh")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program that the first argument names."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if not given:
        _parser().print_help(sys.stderr)
        return 2
    options, remaining = _parser().parse_known_args(given[:1])
    if options.program == "completion":
        return _print_completion(given[1:])
    return load(options.program).main([*remaining, *given[1:]], f"fleet-tools {options.program}")


def load(program: str) -> ModuleType:
    """Imports the module of a program, which has its `PROGRAM` and its `main`."""
    return importlib.import_module(f"fleet_tools.{PROGRAMS[program][0]}")


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, PROGRAMS))
    listing = [f"  {name:{width}}  {summary}" for name, (_, summary) in PROGRAMS.items()]
    parser = argparse.ArgumentParser(
        prog="fleet-tools",
        usage="fleet-tools [-h] [--version] PROGRAM ...",
        description="Robotic tool use in Drake: environments, experts, datasets, policy merging.",
        epilog="\n".join(
            [
                "programs:",
                *listing,
                "",
                "`fleet-tools PROGRAM --help` describes a program; `fleet-tools completion SHELL`",
                f"prints a completion script for {', '.join(_SHELLS)}.",
            ]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"fleet-tools {fleet_tools.__version__}"
    )
    parser.add_argument(
        "program",
        metavar="PROGRAM",
        choices=[*PROGRAMS, "completion"],
        help="one of the programs below",
    )
    return parser


def _print_completion(arguments: Sequence[str]) -> int:
    from fleet_tools.utils.option_parser import parse, union_of

    parser = argparse.ArgumentParser(prog="fleet-tools completion")
    parser.add_argument("shell", choices=_SHELLS, help="shell that reads the script")
    shell = parser.parse_args(arguments).shell
    programs = {name: load(name).PROGRAM.options for name in PROGRAMS}
    parse(union_of(programs, "Fleet-Tools"), ["--tyro-print-completion", shell], "fleet-tools")
    return 0


if __name__ == "__main__":
    sys.exit(main())
