"""Measures barriers: `python -m fleet_tools.baselines.barriers FLEET ... --output runs/barriers`.

For every pair of a fleet's robots it measures the loss, and the success rate in rollouts, on the
line from one policy to the other, as they are and aligned. The same command resumes it.
"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pydantic
from tyro.conf import Positional, arg

from fleet_tools.baselines.experiments.barriers.line_config import LineConfig
from fleet_tools.config.values import Positive
from fleet_tools.parallel.workers import WorkerOptions
from fleet_tools.utils import cli

# PyTorch is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.baselines.experiments.barriers.trained_fleet import TrainedFleet

REPORT, FIGURE, CACHE = "barriers.json", "barriers.png", "cells"
"""Files of the results, and the folder of measurements; its name is that of version 0.1."""


class LineWorkerOptions(WorkerOptions):
    """Number, time limit and place of worker processes."""

    timeout: Positive = 86400.0
    """Time limit of one line, s; after it, its worker is killed and the line is measured again."""


class BarrierOptions(cli.Options):
    """Measures and plots losses and success rates on lines between policies that fleets trained.

    Exit codes:
    0: all lines are measured.
    1: some lines failed, or the disk is full or gone.
    2: it cannot begin.
    130: Ctrl-C.
    """

    fleets: Annotated[
        tuple[Path, ...], Positional, arg(metavar="FLEET ..."), pydantic.Field(min_length=1)
    ]
    """Folders of finished fleets."""
    output: Path
    """Folder of the results: a figure and JSON."""
    lines: LineConfig = LineConfig()
    workers: LineWorkerOptions = LineWorkerOptions()


def _barriers(options: BarrierOptions) -> int:
    from fleet_tools.baselines.experiments.barriers.figure import save_figure
    from fleet_tools.baselines.experiments.barriers.line_measurement import line_jobs, make_measure
    from fleet_tools.baselines.experiments.barriers.report import as_text, make_report
    from fleet_tools.baselines.experiments.job_runner import run_jobs
    from fleet_tools.storage.atomic_files import write_file

    fleets, config = _read_fleets(options), options.lines
    jobs = line_jobs(fleets, config)
    folders = [fleet.folder.absolute() for fleet in fleets]  # workers may be elsewhere
    make_work = partial(make_measure, folders, config, (options.output / CACHE).absolute())
    try:
        done = dict(run_jobs(options.workers, jobs, make_work, unit="line", quiet=options.quiet))
        report = make_report(fleets, config, {job: done[job] for job in jobs})
        options.output.mkdir(parents=True, exist_ok=True)
        write_file(options.output / REPORT, json.dumps(report, indent=1) + "\n")
        save_figure(report, options.output / FIGURE)
    except (OSError, KeyboardInterrupt) as reason:
        return cli.stopped(reason)
    options.report(
        {"output": str(options.output), **report},
        lambda: f"{as_text(report)}\nThe figure is {options.output / FIGURE}.",
    )
    return cli.FAILED if report["failed"] else cli.OK


def _read_fleets(options: BarrierOptions) -> "list[TrainedFleet]":
    """Reads the fleets, and checks that all lines can be measured."""
    from fleet_tools.baselines.experiments.barriers.trained_fleet import TrainedFleet
    from fleet_tools.baselines.training.rollouts import make_success_measure

    fleets = [TrainedFleet.read(folder) for folder in dict.fromkeys(options.fleets)]
    for fleet in fleets:
        for method, method_options in options.lines.method_options().items():
            fleet.config_with(method, method_options)
        make_success_measure(fleet.plan.config.data, options.lines.rollouts, fleet.plan.blueprint)
    return fleets


PROGRAM = cli.Program("baselines.barriers", cli.Command(BarrierOptions, _barriers))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
