"""Runs a study of merging: `python -m fleet_tools.baselines.studies oracles --seeds 3`.

Every result is stored as soon as it is computed: the same command resumes a study that was
stopped, and with more seeds, only what is new is computed.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from fleet_tools.config.values import Count
from fleet_tools.utils import cli

# PyTorch is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.baselines.experiments.studies.tables import TableEntry

NetworkName = Literal["mlp", "elman", "lstm", "gru", "cnn", "transformer"]
FLEETS = "fleets"


class StudyOptions(cli.Options):
    """Options of all studies."""

    seeds: Count = 3
    """Number of seeds."""


class OracleOptions(StudyOptions):
    """Measures barriers and accuracies of merged networks on scikit-learn's digits.

    Exit codes:
    0: the table is complete.
    1: the disk is full or gone.
    2: it cannot begin.
    130: Ctrl-C.
    """

    only: tuple[NetworkName | Literal["fleets"], ...] = ()
    """Only pairs of these networks, and fleets: five models whose data are divided by Dirichlet
    distributions (default: all)."""
    output: Path = Path("data/studies/oracles")
    """Folder of the results."""


class OnlineOptions(StudyOptions):
    """Trains agents by REINFORCE on CartPole, and averages them every so many episodes.

    Exit codes:
    0: the table is complete.
    1: the disk is full or gone.
    2: it cannot begin.
    130: Ctrl-C.
    """

    episodes: Count = 2000
    """Number of episodes of each agent."""
    output: Path = Path("data/studies/online")
    """Folder of the results."""


def _oracles(options: OracleOptions) -> int:
    from fleet_tools.baselines.experiments.studies.oracles import ALPHAS, fleet_study, pair_study
    from fleet_tools.baselines.experiments.studies.tables import table_by_column

    chosen = dict.fromkeys(options.only or (*get_args(NetworkName), FLEETS))
    networks = [name for name in chosen if name != FLEETS]
    pairs = _gather(pair_study(options.output, networks, options.seeds), options)
    fleets: list[TableEntry] = []
    if FLEETS in chosen:
        fleets = _gather(fleet_study(options.output, ALPHAS, options.seeds), options)
    tables = []
    if pairs:
        tables += [
            table_by_column(pairs, "barrier", "barrier of pairs"),
            table_by_column(pairs, "accuracy", "accuracy of averages"),
        ]
    if fleets:
        tables.append(table_by_column(fleets, "accuracy", "accuracy of five, by alpha"))
    return _report(options, options.output, [*pairs, *fleets], tables)


def _online(options: OnlineOptions) -> int:
    from fleet_tools.baselines.experiments.studies.online import online_study
    from fleet_tools.baselines.experiments.studies.tables import table_by_quantity

    entries = _gather(online_study(options.output, options.episodes, options.seeds), options)
    table = table_by_quantity(entries, "mean returns")
    return _report(options, options.output, entries, [table])


def _gather(entries: "Iterable[TableEntry]", options: StudyOptions) -> "list[TableEntry]":
    """Returns all entries, after printing each on stderr as soon as it is there."""
    gathered = []
    for entry in entries:
        gathered.append(entry)
        if not (options.quiet or options.json_output):
            numbers = ", ".join(f"{name} {value:.4g}" for name, value in entry.value.items())
            title = " ".join(filter(None, [entry.row, entry.column]))
            print(f"{title}, seed {entry.seed}: {numbers}", file=sys.stderr, flush=True)
    return gathered


def _report(
    options: StudyOptions, folder: Path, entries: "Sequence[TableEntry]", tables: Sequence[str]
) -> int:
    note = f"Medians over {options.seeds} seeds, with the lowest and the highest."
    options.report(
        {"folder": str(folder), "entries": [asdict(entry) for entry in entries]},
        lambda: "\n\n".join([*tables, note] if options.seeds > 1 else tables),
    )
    return cli.OK


PROGRAM = cli.Program(
    "baselines.studies",
    {
        "oracles": cli.Command(OracleOptions, _oracles),
        "online": cli.Command(OnlineOptions, _online),
    },
    "Runs a study of merging, or resumes one that was interrupted.",
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
