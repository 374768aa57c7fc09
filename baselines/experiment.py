"""Runs experiments on merging: `python -m fleet_tools.baselines.experiment FILE --output runs`.

`--output` has a folder for each trained fleet, named by a hash of its inputs. The same command
resumes a stopped experiment, and experiments share fleets. If robots of several fleets begin alike,
they train for the first round once.
"""

import sys
from pathlib import Path
from typing import Annotated

import pydantic
from tyro.conf import Positional, arg

from fleet_tools.config.values import Positive
from fleet_tools.parallel.workers import WorkerOptions
from fleet_tools.utils import cli


class RunWorkerOptions(WorkerOptions):
    """Number, time limit and place of worker processes."""

    timeout: Positive = 86400.0
    """Time limit of one training run, s; then its worker is killed, and it is resumed."""


class ExperimentOptions(cli.Options):
    """Runs experiments, or the rest of them, and writes their results, pages and figures.

    Exit codes:
    0: all runs are measured.
    1: some runs failed and are missing in the results, or the disk is full or gone.
    2: it cannot begin.
    130: Ctrl-C.
    """

    files: Annotated[
        tuple[Path, ...], Positional, arg(metavar="FILE ..."), pydantic.Field(min_length=1)
    ]
    """YAML files with the keys of baselines/experiments/form.py:Experiment."""
    output: Path | None = None
    """Folder of fleets and results, with JSON, a page and figures for each file."""
    render: bool = False
    """Only write page and figures again from the result beside each file (into --output, if it is
    given)."""
    workers: RunWorkerOptions = RunWorkerOptions()

    @pydantic.model_validator(mode="after")
    def _has_output(self) -> "ExperimentOptions":
        if self.output is None and not self.render:
            raise ValueError("give --output DIR, the folder for results")
        return self


def _experiment(options: ExperimentOptions) -> int:
    # PyTorch is imported once the arguments are known to be valid.
    from fleet_tools.baselines.experiments.form import load_experiment
    from fleet_tools.baselines.experiments.page import markdown_page
    from fleet_tools.baselines.experiments.running import render, run_experiment
    from fleet_tools.baselines.federated.life import EventError

    results, pages = {}, []
    for path in options.files:
        experiment = load_experiment(path)
        try:
            if options.output is None or options.render:
                result = render(experiment, path, options.output or path.parent)
            else:
                result = run_experiment(
                    experiment, path.stem, options.output, options.workers, options.quiet
                )
        except EventError as error:
            raise error.in_file(path) from None
        except (OSError, KeyboardInterrupt) as reason:
            return cli.stopped(reason)
        results[path.stem] = {name: result[name] for name in ("rows", "failed")}
        pages.append(markdown_page(experiment, result, path.stem, ()))
    folder = options.output or "the folders of the files"
    options.report(
        {"output": str(folder), "experiments": results},
        lambda: "\n".join([*pages, f"Pages and figures are in {folder}."]),
    )
    return cli.FAILED if any(each["failed"] for each in results.values()) else cli.OK


PROGRAM = cli.Program("baselines.experiment", cli.Command(ExperimentOptions, _experiment))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
