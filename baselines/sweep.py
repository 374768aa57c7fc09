"""Compares fleets: `python -m fleet_tools.baselines.sweep SWEEP.yaml --output runs/sweep`.

Each fleet has its own folder in `--output`, named by its configuration: the same command resumes
a sweep that was stopped, and other sweeps use the same fleets. Robots that begin alike in several
fleets train for the first round once.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from fleet_tools.config.values import Positive
from fleet_tools.parallel.workers import WorkerOptions
from fleet_tools.utils import cli


class FleetWorkerOptions(WorkerOptions):
    """Number, time limit and place of worker processes."""

    timeout: Positive = 86400.0
    """Time limit of one fleet, s; after it, its worker is killed and the fleet is resumed."""


class SweepOptions(cli.Options):
    """Trains fleets that differ in one key, with several seeds each, and plots their results.

    Exit codes:
    0: all fleets are trained.
    1: some fleets failed and are missing in the results, or the disk is full or gone.
    2: it cannot begin.
    130: Ctrl-C.
    """

    sweep: Annotated[Path, Positional, arg(metavar="SWEEP")]
    """YAML file with the keys of baselines/experiments/sweeps/sweep.py:Sweep."""
    output: Path
    """Folder of the fleets' folders, and of the results: a page, figures and JSON."""
    workers: FleetWorkerOptions = FleetWorkerOptions()


def _sweep(options: SweepOptions) -> int:
    # PyTorch is imported once the arguments are known to be valid.
    from fleet_tools.baselines.experiments.job_runner import run_jobs
    from fleet_tools.baselines.experiments.sweeps.fleet_runner import make_fleet_runner
    from fleet_tools.baselines.experiments.sweeps.output import write_results
    from fleet_tools.baselines.experiments.sweeps.summary import as_text, summarize
    from fleet_tools.baselines.experiments.sweeps.sweep import Sweep, planned_runs
    from fleet_tools.config.values import load_yaml
    from fleet_tools.storage.atomic_files import clear_old_leftovers

    sweep = load_yaml(Sweep, options.sweep)
    runs = planned_runs(sweep)
    distinct = list({run.folder: run for run in runs}.values())
    make_work = partial(make_fleet_runner, options.output.absolute())  # workers may be elsewhere
    clear_old_leftovers(options.output)  # of robots' replies, which fleets share
    try:
        done = run_jobs(options.workers, distinct, make_work, unit="fleet", quiet=options.quiet)
    except (OSError, KeyboardInterrupt) as reason:
        return cli.stopped(reason)
    results = summarize(sweep, runs, {run.folder: result for run, result in done})
    stem = options.sweep.stem
    write_results(sweep, results, options.output, stem)
    options.report(
        {"output": str(options.output), **results},
        lambda: f"{as_text(sweep, results)}\nThe page is {options.output / f'{stem}.md'}.",
    )
    return cli.FAILED if results["failed"] else cli.OK


PROGRAM = cli.Program("baselines.sweep", cli.Command(SweepOptions, _sweep))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
