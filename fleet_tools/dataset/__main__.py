"""Describes and exports datasets: `python -m fleet_tools.dataset COMMAND FOLDER`."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Self

import pydantic
from tyro.conf import Positional

from fleet_tools.config.values import Count, Seed
from fleet_tools.dataset.export import FormatName
from fleet_tools.utils import cli


class InfoOptions(cli.Options):
    """Prints what a dataset holds."""

    dataset: Annotated[Path, Positional]
    """Folder of the dataset."""
    output: Path | None = None
    """Image with some of its episodes and its distributions (.png, .jpg, .pdf or .svg)."""
    episodes: Count | None = None
    """Number of episodes in the image (default: 4)."""
    seed: Seed | None = None
    """Seed of the draw of episodes in the image (default: 0)."""

    @pydantic.model_validator(mode="after")
    def _require_output(self) -> Self:
        if self.output is None and (self.episodes, self.seed) != (None, None):
            raise ValueError("--episodes and --seed select what the image shows; give --output")
        return self


class ExportOptions(cli.Options):
    """Exports a dataset to the format of another project."""

    dataset: Annotated[Path, Positional]
    """Folder of the dataset."""
    to: FormatName
    """The project."""
    output: Path | None = None
    """New file or folder (default: beside the dataset); for minari, the root of its datasets."""
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
    if options.output is not None:
        from fleet_tools.studio.pictures.contact_sheet import write_contact_sheet

        records = dataset.draw(options.episodes or 4, options.seed or 0)
        write_contact_sheet(options.output, dataset, records, quiet=options.quiet)
        summary["image"] = str(options.output)
    location = "" if options.output is None else f"\n  image in {options.output}"
    options.report(summary, lambda: as_text(summary) + location)
    return cli.OK


def _export(options: ExportOptions) -> int:
    from fleet_tools.dataset.dataset_folder import Dataset
    from fleet_tools.dataset.export.exporting import as_text, export_dataset

    dataset = Dataset(options.dataset, check=not options.no_check)
    export = export_dataset(
        dataset,
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
    {"info": cli.Command(InfoOptions, _info), "export": cli.Command(ExportOptions, _export)},
    "Describes and exports datasets of `python -m fleet_tools.collect`.",
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
