"""Describes, observes and exports datasets: `python -m fleet_tools.dataset COMMAND FOLDER`."""

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import pydantic
from tyro.conf import Positional, arg

from fleet_tools.dataset.export import FormatName
from fleet_tools.envs.mode_options import EnvArgument, ObsModeOption
from fleet_tools.parallel.workers import WorkerOptions
from fleet_tools.utils import cli


class InfoOptions(cli.Options):
    """Prints the contents of a dataset."""

    dataset: Annotated[Path, Positional]
    """Folder of the dataset."""


class ObserveOptions(cli.Options):
    """Runs the stored actions of a dataset again, and stores observations of another mode.

    The new dataset has the same attempts, states and actions. An episode that takes another course
    is recorded as not_reproducible, and not stored.

    Exit codes:
    0: the new dataset holds all episodes of the dataset.
    1: an episode took another course.
    2: it cannot begin, or an episode of the dataset is missing or damaged.
    130: Ctrl-C, which waits for the episodes in progress.
    """

    dataset: Annotated[Path, Positional]
    """Folder of the dataset, which stays as it is."""
    obs_mode: ObsModeOption
    """Observations of the new dataset."""
    env: tuple[EnvArgument, ...] = ()
    """Other keyword arguments of the environment that affect observations, such as
    cloud_size=[128,128]."""
    output: Path
    """Folder of the new dataset; one that was begun by the same command is completed."""
    workers: WorkerOptions = WorkerOptions()


class ExportOptions(cli.Options):
    """Exports a dataset, or several together, to the format of another project.

    Several datasets need the same observations, cameras, units and control rate.
    """

    datasets: Annotated[
        tuple[Path, ...], Positional, arg(metavar="FOLDER ..."), pydantic.Field(min_length=1)
    ]
    """Folders of the datasets."""
    to: FormatName
    """The project."""
    output: Path | None = None
    """New file or folder (default: beside a single dataset); for minari, the root of its
    datasets."""
    all: bool = False
    """Export stored failures, too, marked as such."""
    whole: bool = False
    """Do not cut episodes at steps that are not to be imitated; learners must heed `imitate`."""
    no_check: bool = False
    """Do not check the digests of the episodes' files, and the values that are read."""


def _info(options: InfoOptions) -> int:
    from fleet_tools.dataset.dataset_folder import Dataset
    from fleet_tools.dataset.summary import as_text, summarize

    dataset = Dataset(options.dataset)
    summary = summarize(dataset.folder, dataset.header, dataset.manifest())
    options.report(summary, lambda: as_text(summary))
    return cli.OK


def _observe(options: ObserveOptions) -> int:
    from fleet_tools.dataset.collection import collect
    from fleet_tools.dataset.dataset_folder import Dataset
    from fleet_tools.dataset.reobservation import describe_reobservation, make_reobservations
    from fleet_tools.dataset.summary import as_text

    source = Dataset(options.dataset)
    header = describe_reobservation(
        source.header, {**dict(options.env), "obs_mode": options.obs_mode}
    )
    attempts = [record.attempt for record in source.manifest()]
    seen = collect(
        options.output,
        header,
        partial(make_reobservations, source=options.dataset.resolve()),
        len(attempts),  # so that all are made
        options.workers,
        attempts=attempts,
        quiet=options.quiet,
    )
    summary = {**seen.summary, "source_episodes": len(source), "source": str(options.dataset)}
    summary["complete"] = summary["stored_episodes"] == len(source)
    stored = f"{summary['stored_episodes']} of {len(source)} episodes of {options.dataset}"
    options.report(
        summary, lambda: f"{as_text(summary)}\n  {stored}, in {summary['seconds']:.1f} s"
    )
    if seen.failure is not None or (seen.interrupted and not summary["complete"]):
        return cli.stopped(seen.failure)
    return cli.OK if summary["complete"] else cli.FAILED


def _export(options: ExportOptions) -> int:
    from fleet_tools.dataset.dataset_folder import Dataset
    from fleet_tools.dataset.export.exporting import as_text, export_dataset

    export = export_dataset(
        [Dataset(folder, check=not options.no_check) for folder in options.datasets],
        options.to,
        options.output,
        failures=options.all,
        whole=options.whole,
        quiet=options.quiet,
    )
    options.report(asdict(export), lambda: as_text(export))
    return cli.OK


PROGRAM = cli.Program(
    "dataset",
    {
        "info": cli.Command(InfoOptions, _info),
        "observe": cli.Command(ObserveOptions, _observe),
        "export": cli.Command(ExportOptions, _export),
    },
    "Describes, observes and exports datasets of `python -m fleet_tools.collect`.",
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
