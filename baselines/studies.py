"""Runs a study of merging: `python -m fleet_tools.baselines.studies supervised --data digits`.

Every result is stored as soon as it is computed: the same command resumes a study that was
stopped, and with more seeds, only what is new is computed.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

import pydantic

from fleet_tools.config.values import Count, Positive
from fleet_tools.errors import ConfigError
from fleet_tools.utils import cli

# PyTorch is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.baselines.experiments.studies.tables import TableEntry

NetworkName = Literal["mlp", "elman", "lstm", "gru", "cnn", "resnet20", "transformer", "language"]
SourceName = Literal[
    "digits", "mnist", "fashion_mnist", "cifar10", "shapes32", "shakespeare", "markov_speakers"
]
MethodName = Literal[
    "naive_average",
    "git_rebasin",
    "sinkhorn_data",
    "sinkhorn_data_matched",
    "fleet_merge",
    "fleet_merge_monotone",
    "fleet_merge_listing",
    "fleet_merge_soft",
    "fleet_merge_simplex",
    "fleet_merge_average",
    "fleet_merge_in_turn",
    "fleet_merge_identity",
    "fleet_merge_identity_in_turn",
    "fleet_merge_1_epoch",
    "fleet_merge_4_epochs",
    "fleet_merge_half_steps",
    "regmean",
    "least_squares",
    "common_init",
    "fed_sgd",
    "untrained",
    "linear",
    "joint",
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
    test_examples: Count | None = None
    """Number of examples for the test (default: all)."""
    epochs: Count = 40
    """Number of epochs."""
    batch: Count = 64
    """Number of examples in a batch."""
    layers: Annotated[tuple[Count, ...], pydantic.Field(min_length=1)] = (4,)
    """Numbers of hidden layers of MLPs; fleets have the first one."""
    width: Count = 512
    """Number of units in each layer of MLPs."""
    width_multiplier: Count = 1
    """Factor of the channels of resnet20."""
    methods: tuple[MethodName, ...] = ()
    """Methods and controls (default: all but the variants of fleet_merge)."""
    steps: Count | None = None
    """Number of steps of each descent of permutations (default: 200 for pairs, 500 if they are
    transformers, and 40 for fleets)."""
    fleet_network: NetworkName | None = None
    """Network of the fleets (default: mlp, or language for texts)."""
    models: tuple[Count, ...] = (5,)
    """Numbers of models of a fleet."""
    alphas: tuple[Positive, ...] = (0.1, 0.3, 1.0, 10.0)
    """Parameters of the Dirichlet distributions."""
    output: Path | None = None
    """Folder of the results (default: data/studies/DATA)."""
    page: Path | None = None
    """File for the tables as Markdown, with the suffix .md; beside it are written the figures, and
    the results as JSON."""

    @pydantic.model_validator(mode="after")
    def _page_is_markdown(self) -> Self:
        if self.page and self.page.suffix != ".md":
            raise ValueError(f"--page is {self.page}; give a file with the suffix .md")
        return self


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
    from fleet_tools.baselines.experiments.studies.fleets import (
        PANELS,
        STEPS,
        fleet_columns,
        fleet_study,
    )
    from fleet_tools.baselines.experiments.studies.model_sets import CLOSED_FORMS, StudyData
    from fleet_tools.baselines.experiments.studies.networks import (
        mlp_name,
        networks_of,
        resnet20_name,
    )
    from fleet_tools.baselines.experiments.studies.output import tables_of, write_results
    from fleet_tools.baselines.experiments.studies.pairs import pair_columns, pair_study
    from fleet_tools.baselines.experiments.studies.training import TrainingSettings

    training, test = sources.load(options.data, options.data_root)
    settings = TrainingSettings(epochs=options.epochs, batch=options.batch)
    training, test = training.first(options.examples), test.first(options.test_examples)
    data = StudyData(options.data, training, test, settings)
    folder = options.output or Path("data/studies") / options.data
    sizes = {
        "mlp": [mlp_name(layers, options.width) for layers in options.layers],
        "resnet20": [resnet20_name(options.width_multiplier)],
    }
    known = networks_of(training.shape)
    chosen = dict.fromkeys(options.only or (*known, FLEETS))
    networks = [size for name in chosen if name != FLEETS for size in sizes.get(name, [name])]
    of_fleets = options.fleet_network or known[0]
    of_fleets = sizes.get(of_fleets, [of_fleets])[0]
    closed_forms = not options.methods or set(options.methods).intersection(CLOSED_FORMS)
    studied = (*networks, of_fleets) if FLEETS in chosen else networks
    for name in studied:  # before anything is trained
        data.network(name)
        if closed_forms:
            data.require_measurable(name)
    if networks:
        _require_some("pairs", options.methods, pair_columns("mlp"))
    if FLEETS in chosen:
        _require_some("fleets", options.methods, fleet_columns(2))
    entries: list[TableEntry] = []
    pairs = pair_study(folder, data, networks, options.seeds, options.methods, options.steps)
    entries += _gather(pairs, options)
    if FLEETS in chosen:
        kinds = [(count, alpha) for count in options.models for alpha in options.alphas]
        methods = options.methods or PANELS
        steps = options.steps or STEPS
        fleets = fleet_study(folder, data, kinds, options.seeds, of_fleets, methods, steps)
        entries += _gather(fleets, options)
    title = sources.SOURCES[options.data].title
    if options.page:
        results = {
            "title": title,
            "command": options.command_line,
            "sizes": f"{title}: {len(training)} examples for training, {len(test)} for the test, "
            f"{options.epochs} epochs in batches of {options.batch}. {_note(options.seeds)}",
            "entries": [asdict(entry) for entry in entries],
        }
        write_results(results, options.page)
    return _report(options, folder, entries, [each.as_text() for each in tables_of(title, entries)])


def _require_some(study: str, methods: Sequence[str], known: Iterable[str]) -> None:
    """Raises an error if methods are chosen, and a study has none of them."""
    if methods and not set(methods).intersection(known):
        raise ConfigError(
            f"The study of {study} has none of the methods {', '.join(methods)}. It has "
            f"{', '.join(known)}: choose one of them, or leave the study out by --only."
        )


def _online(options: OnlineOptions) -> int:
    from fleet_tools.baselines.experiments.studies.online import online_study
    from fleet_tools.baselines.experiments.studies.tables import table_by_quantity

    entries = _gather(online_study(options.output, options.episodes, options.seeds), options)
    table = table_by_quantity(entries, "mean returns")
    return _report(options, options.output, entries, [table.as_text()])


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
    options.report(
        {"folder": str(folder), "entries": [asdict(entry) for entry in entries]},
        lambda: "\n\n".join([*tables, _note(options.seeds)]),
    )
    return cli.OK


def _note(seeds: int) -> str:
    if seeds == 1:
        return "One seed."
    return f"Medians over {seeds} seeds, with the lowest and the highest."


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
