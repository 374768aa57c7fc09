"""Works on data sets: `python -m fleet_tools.dataset COMMAND DIR`."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from fleet_tools.errors import FleetToolsError
from fleet_tools.utils import cli as programs


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; see `--help`."""
    return programs.run(_parser(), programs.run_command, arguments)


def _parser() -> argparse.ArgumentParser:
    parser, commands = programs.command_parser(
        "fleet_tools.dataset",
        "Works on data sets that `python -m fleet_tools.collect` wrote.",
        "Exits with 0 when all went well, 1 when the disk failed, 2 when it cannot begin, 130 "
        "after Ctrl-C.",
    )
    info = _add(commands, "info", _info, "says what a data set holds")
    info.add_argument(
        "--plot", metavar="PICTURE", type=Path,
        help="draw some of its episodes, and how it is distributed (.png, .jpg, .pdf or .svg)",
    )  # fmt: skip
    info.add_argument(
        "--episodes", metavar="N", type=programs.positive_int, help="how many --plot shows (4)"
    )  # fmt: skip
    info.add_argument("--seed", type=programs.seed, help="draws which ones --plot shows (0)")
    _add_export(commands)
    return parser


def _add_export(commands) -> None:
    from fleet_tools.dataset.export import FORMATS

    parser = _add(commands, "export", _export, "hands a data set to another project's reader")
    parser.add_argument("--to", choices=sorted(FORMATS), required=True, help="the project")
    parser.add_argument(
        "--output", metavar="OUT", type=Path,
        help="what to make: a file or folder (beside DIR); for minari, the root that holds it",
    )  # fmt: skip
    parser.add_argument(
        "--all", action="store_true", help="take stored failures, too, marked as such"
    )


def _add(commands, name: str, work, description: str) -> argparse.ArgumentParser:
    parser = programs.add_command(commands, name, work, description)
    parser.add_argument("folder", metavar="DIR", type=Path, help="of the data set")
    return parser


def _info(options: argparse.Namespace) -> int:
    from fleet_tools.dataset import Dataset
    from fleet_tools.dataset.summary import as_text, summarize

    dataset = Dataset(options.folder)
    summary = summarize(dataset.folder, dataset.header, dataset.manifest())
    if options.plot is None and (options.episodes, options.seed) != (None, None):
        raise FleetToolsError("--episodes and --seed choose what is shown; give --plot PICTURE.")
    if options.plot is not None:
        from fleet_tools.visualization.contact_sheet import write_contact_sheet

        records = dataset.draw(options.episodes or 4, options.seed or 0)
        write_contact_sheet(options.plot, dataset, records, quiet=options.quiet)
        summary["picture"] = str(options.plot)
    if options.json:
        print(json.dumps(summary))
    elif not options.quiet:
        print(as_text(summary))
        if options.plot is not None:
            print(f"  picture in {options.plot}")
    return programs.OK


def _export(options: argparse.Namespace) -> int:
    from fleet_tools.dataset import Dataset
    from fleet_tools.dataset.export import export_dataset
    from fleet_tools.dataset.export.exporting import as_text

    made = export_dataset(Dataset(options.folder), options.to, options.output, failures=options.all)
    if options.json:
        print(json.dumps(asdict(made)))
    elif not options.quiet:
        print(as_text(made))
    return programs.OK


if __name__ == "__main__":
    sys.exit(main())
