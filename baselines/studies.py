"""Runs a study of merging: `python -m fleet_tools.baselines.studies supervised --data digits`.

Every result is stored as soon as it is computed: the same command resumes a study that was
stopped, and with more seeds, only what is new is computed.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fleet_tools.config.values import Count, Positive
from fleet_tools.utils import cli

# PyTorch is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.baselines.experiments.studies.tables import TableEntry

NetworkName = Literal["mlp", "elman", "lstm", "gru", "cnn", "transformer", "language"]
SourceName = Literal[
    "digits", "mnist", "fashion_mnist", "cifar10", "shapes32", "shakespeare", "markov_speakers"
]
FLEETS = "fleets"


class StudyOptions(cli.Options):
    """Options of all studies."""

    seeds: Count = 3
    """Number of seeds."""


class SupervisedOptions(StudyOptions):
    """Measures barriers and accuracies of merged networks that learn labelled examples.

    Exit codes:
    0: the table is complete.
    1: the disk is full or gone.
    2: it cannot begin.
    130: Ctrl-C.
    """

    only: tuple[NetworkName | Literal["fleets"], ...] = ()
    """Only pairs of these networks, and fleets, whose data are divided by Dirichlet distributions
    (default: all)."""
    data: SourceName = "digits"
    """Images, or texts whose label is the next character; shapes32 and markov_speakers are
    generated."""
    data_root: Path | None = None
    """Folder with their files, if they come as files."""
    examples: Count | None = None
    """Number of examples for training (default: all)."""
    epochs: Count = 40
    """Number of epochs."""
    models: tuple[Count, ...] = (5,)
    """Numbers of models of a fleet."""
    alphas: tuple[Positive, ...] = (0.1, 0.3, 1.0, 10.0)
    """Parameters of the Dirichlet distributions."""
    output: Path | None = None
    """Folder of the results (default: data/studies/DATA)."""


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


def _supervised(options: SupervisedOptions) -> int:
    from fleet_tools.baselines.experiments.studies import sources
    from fleet_tools.baselines.experiments.studies.fleets import fleet_study
    from fleet_tools.baselines.experiments.studies.model_sets import StudyData
    from fleet_tools.baselines.experiments.studies.networks import networks_of
    from fleet_tools.baselines.experiments.studies.pairs import pair_study
    from fleet_tools.baselines.experiments.studies.tables import table_by_column
    from fleet_tools.baselines.experiments.studies.training import TrainingSettings

    training, test = sources.load(options.data, options.data_root)
    settings = TrainingSettings(epochs=options.epochs)
    data = StudyData(options.data, training.first(options.examples), test, settings)
    folder = options.output or Path("data/studies") / options.data
    chosen = dict.fromkeys(options.only or (*networks_of(training.shape), FLEETS))
    networks = [name for name in chosen if name != FLEETS]
    for name in networks:
        data.network(name)  # before anything is trained
    pairs = _gather(pair_study(folder, data, networks, options.seeds), options)
    fleets: list[TableEntry] = []
    if FLEETS in chosen:
        kinds = [(count, alpha) for count in options.models for alpha in options.alphas]
        name = networks_of(training.shape)[0]
        fleets = _gather(fleet_study(folder, data, kinds, options.seeds, name), options)
    tables, title = [], sources.SOURCES[options.data].title
    if pairs:
        tables += [
            table_by_column(pairs, "barrier", f"{title}: barrier of pairs"),
            table_by_column(pairs, "accuracy", f"{title}: accuracy of averages"),
        ]
    if fleets:
        tables.append(table_by_column(fleets, "accuracy", f"{title}: accuracy of fleets"))
    return _report(options, folder, [*pairs, *fleets], tables)


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
        "supervised": cli.Command(SupervisedOptions, _supervised),
        "online": cli.Command(OnlineOptions, _online),
    },
    "Runs a study of merging, or resumes one that was interrupted.",
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
