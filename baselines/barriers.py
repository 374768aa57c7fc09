"""Barriers between policies that fleets trained: `python -m fleet_tools.baselines.barriers FLEET`.

    python -m fleet_tools.baselines.barriers runs/hammer runs/knife --output runs/barriers

For every pair of a fleet's robots it measures what is lost on the straight line from one policy to
the other, as they are and aligned. The same command goes on where it was stopped.
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet_tools.utils import cli as programs

# PyTorch is imported once the arguments are known to be good.
if TYPE_CHECKING:
    from fleet_tools.baselines.experiments.barriers.lines import Lines
    from fleet_tools.baselines.experiments.barriers.trained import Trained

METHODS = ("naive_average", "git_rebasin", "fleet_merge")
REPORT, FIGURE, CELLS = "barriers.json", "barriers.png", "cells"


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; see `--help`."""
    return programs.run(_parser(), _barriers, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = programs.argument_parser(
        "fleet_tools.baselines.barriers",
        "Measures and draws loss and success on lines between policies that fleets trained.",
        "Exits with 0 when all lines are measured, 1 when some came to no result or the disk "
        "failed, 2 when it cannot begin, 130 after Ctrl-C.",
    )
    parser.add_argument(
        "fleets", metavar="FLEET", type=Path, nargs="+", help="the folder of a finished fleet"
    )
    parser.add_argument("--output", metavar="DIR", type=Path, required=True)
    parser.add_argument(
        "--method", metavar="NAME", nargs="+", default=list(METHODS),
        help="that aligns two policies: of merging.registry, or module:function for one of yours; "
        f"this code is run ({' '.join(METHODS)})",
    )  # fmt: skip
    parser.add_argument(
        "--option", metavar="METHOD.NAME=VALUE", action="append", default=[],
        help="of a method or its Descent, such as fleet_merge.steps=60; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--points", metavar="N", type=programs.positive_int, default=11,
        help="at which a line's losses are measured, with both ends: odd (11)",
    )  # fmt: skip
    parser.add_argument(
        "--rollouts", metavar="N", type=programs.count, default=0,
        help="scenes of each task in which policies on a line are tried (0)",
    )  # fmt: skip
    parser.add_argument(
        "--rollout-points", metavar="N", type=programs.positive_int, default=5,
        help="at which they are tried, with both ends: odd (5)",
    )  # fmt: skip
    programs.add_worker_options(parser, 86400.0, "a line may take before it is begun once more")
    return parser


def _barriers(options: argparse.Namespace) -> int:
    from fleet_tools.baselines.experiments.barriers.lines import jobs_of
    from fleet_tools.baselines.experiments.barriers.measuring import measuring
    from fleet_tools.baselines.experiments.job_runner import results_of

    lines = _lines(options)
    fleets = _fleets(options, lines)
    jobs = jobs_of(fleets, lines)
    folders = [fleet.folder for fleet in fleets]
    work = partial(measuring, folders, lines, options.output / CELLS)
    try:
        came = dict(results_of(options, jobs, work, "line"))
        return _tell(options, fleets, lines, {job: came[job] for job in jobs})
    except (OSError, KeyboardInterrupt) as reason:
        return programs.stopped(reason)


def _lines(options: argparse.Namespace) -> "Lines":
    from fleet_tools.baselines.experiments.barriers.lines import Lines
    from fleet_tools.config.values import parse
    from fleet_tools.errors import ConfigError, UnknownNameError

    methods: dict[str, dict[str, str]] = {name: {} for name in options.method}
    for text in options.option:
        key, equals, value = text.partition("=")
        method, dot, name = key.rpartition(".")
        if not (equals and dot):
            raise ConfigError(
                f"The option {text!r} is no METHOD.NAME=VALUE, such as fleet_merge.steps=60."
            )
        if method not in methods:
            raise UnknownNameError("chosen method", method, methods)
        methods[method][name] = value
    named = {name: getattr(options, name) for name in ("points", "rollouts", "rollout_points")}
    return parse(Lines, {"methods": methods, **named}, "The command line")


def _fleets(options: argparse.Namespace, lines: "Lines") -> "list[Trained]":
    """Reads the fleets, and sees to it that all can be measured."""
    from fleet_tools.baselines.experiments.barriers.trained import Trained
    from fleet_tools.baselines.training.rollouts import try_out_in

    fleets = [Trained.read(folder) for folder in dict.fromkeys(options.fleets)]
    for fleet in fleets:
        for method, chosen in lines.methods.items():
            fleet.merging_by(method, chosen)
        try_out_in(fleet.plan.config.data, lines.rollouts, fleet.plan.blueprint)
    return fleets


def _tell(
    options: argparse.Namespace, fleets: "list[Trained]", lines: "Lines", came: dict[Any, Any]
) -> int:
    from fleet_tools.baselines.experiments.barriers.figure import save_figure
    from fleet_tools.baselines.experiments.barriers.report import as_text, report_of
    from fleet_tools.storage.atomic_files import whole

    report = report_of(fleets, lines, came)
    options.output.mkdir(parents=True, exist_ok=True)
    with whole(options.output / REPORT) as aside:
        aside.write_text(json.dumps(report, indent=1) + "\n")
    save_figure(report, options.output / FIGURE)
    if options.json:
        print(json.dumps({"output": str(options.output), **report}))
    elif not options.quiet:
        print(f"{as_text(report)}\nDrawn in {options.output / FIGURE}.")
    return programs.NOT_WELL if report["failed"] else programs.OK


if __name__ == "__main__":
    sys.exit(main())
