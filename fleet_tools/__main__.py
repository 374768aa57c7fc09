"""All programs under one name: `fleet-tools collect --tool hammer --episodes 20`.

fleet-tools PROGRAM ...         the same as `python -m fleet_tools.PROGRAM ...`
fleet-tools --version           the version of the package
fleet-tools completion SHELL    a completion script for bash, zsh or tcsh
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

import fleet_tools

GROUPS = {
    "do": {
        "collect": ("collect", "Collects demonstrations into a dataset."),
        "teleop": ("teleop", "Collects demonstrations by hand, in the browser."),
        "train": ("baselines.train", "Trains a policy by behaviour cloning."),
        "attach-detector": (
            "baselines.attach_detector",
            "Attaches a keypoint detector to a policy, which then acts on point clouds.",
        ),
        "evaluate": ("evaluate", "Evaluates a policy by a protocol."),
        "merge": ("baselines.merge", "Merges models into one."),
        "fleet": ("baselines.fleet", "Trains a fleet of robots in rounds of federated learning."),
        "experiment": ("baselines.experiment", "Compares merging methods, draws and tables."),
        "audit": (
            "baselines.audit",
            "Audits requirements of tasks, and the ranks that results support.",
        ),
        "metaworld": (
            "baselines.metaworld.__main__",
            "Collects and evaluates in Meta-World's tasks.",
        ),
    },
    "look": {
        "view": ("view", "Shows episodes in the browser, or saves them as recording or video."),
        "replay": ("replay", "Checks that a dataset is reproducible bit for bit."),
        "dataset": ("dataset.__main__", "Describes and exports datasets."),
        "leaderboard": (
            "leaderboard.__main__",
            "Runs policies of entries in fresh scenes, and ranks them.",
        ),
        "reproduce": ("reproduce", "Makes a stored result again, and compares the two."),
        "checkpoints": ("checkpoints", "Lists and gets trained policies of this release."),
        "doctor": ("doctor", "Checks the abilities of this machine."),
    },
    "make": {
        "new-task": ("new_task", "Writes the folder of a task of your own, to begin with."),
        "label": ("label", "Labels a mesh by clicks in the browser."),
        "assets": ("assets.__main__", "Generates and imports models of tools and objects."),
        "photograph": ("photograph", "Photographs the episodes of a dataset with Blender."),
    },
    "serve": {
        "serve": ("serve", "Serves a policy over a socket, to simulations and robots."),
    },
}
PROGRAMS = {name: program for group in GROUPS.values() for name, program in group.items()}
"""Module and summary of each program. `fleet_tools.blender` is left out: it needs Blender, in
another environment."""

_SHELLS = ("bash", "zsh", "tcsh")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program that the first argument names.

    Modules of the working directory are found, as by `python -m`: a console script has its own
    folder in that place.
    """
    if arguments is None and not sys.flags.safe_path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
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
    listing = [
        f"{group if k == 0 else '':6}{name:{width}}  {summary}"
        for group, programs in GROUPS.items()
        for k, (name, (_, summary)) in enumerate(programs.items())
    ]
    parser = argparse.ArgumentParser(
        prog="fleet-tools",
        usage="fleet-tools [-h] [--version] PROGRAM ...",
        description="Robotic tool use in Drake: environments, experts, datasets, policy merging.",
        epilog="\n".join(
            [
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
    choices = [*PROGRAMS, "completion"]
    parser.add_argument("program", metavar="PROGRAM", choices=choices, help=argparse.SUPPRESS)
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
