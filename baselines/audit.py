"""Audits the benchmark: `fleet-tools audit COMMAND`.

It trains policies without a part of the observation, or on other demonstrations. It also tests
ranks and scenes in stored results.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pydantic
from tyro.conf import Positional, UseAppendAction, arg

from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.config.values import Count
from fleet_tools.utils import cli
from fleet_tools.utils.option_parser import KeyValue

# PyTorch is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.baselines.training.arms import Arm

REPORT = "audit.json"
"""File of the audit with the rows so far."""


class _LearningOptions(cli.Options):
    dataset: Annotated[tuple[Path, ...], pydantic.Field(min_length=1)]
    """Folders of datasets, as `fleet-tools collect` makes them."""
    output: Path
    """Folder of the audit; the same command resumes it."""
    architecture: Annotated[tuple[str, ...], pydantic.Field(min_length=1)] = ("mlp", "elman")
    """Architectures of the policies, such as mlp (no memory) and elman (memory)."""
    settings: Annotated[UseAppendAction[tuple[KeyValue, ...]], arg(name="set")] = ()
    """Setting of the architectures, such as body.width=256; may be repeated."""
    training: TrainingConfig = TrainingConfig()
    scenes: Count = 40
    """Number of validation scenes of each policy, the same for all."""


class ObservationOptions(_LearningOptions):
    """Trains policies that lack a part of the observation, and one that reads everything.

    If a policy solves a task without an entry, the task does not need the entry. In each task and
    architecture, policies lack one entry each, or all entries except proprioception. Another one
    reads them in the first step only. On one core, each policy takes one to three minutes (300
    demonstrations, 40 scenes).

    Exit codes:
    0: all policies are trained and evaluated.
    1: one diverged, or the disk is full or gone.
    2: it cannot begin.
    130: Ctrl-C.
    """

    lacking: tuple[str, ...] = ()
    """Entries to leave out, such as tool_keypoints, one in each policy (default: all policies)."""


class DemonstrationOptions(_LearningOptions):
    """Trains policies on several datasets of one task, with the same number of episodes.

    It shows the effect of the demonstrations' source, such as the expert, the expert with noise, or
    other seeds, and of their number. On one core, each policy takes one to three minutes (300
    demonstrations, 40 scenes).

    Exit codes: see `audit observations --help`.
    """

    episodes: tuple[Count, ...] = ()
    """Numbers of episodes for training (default: nine tenths of the smallest dataset)."""


class RankOptions(cli.Options):
    """Tests the ranks of neighbouring methods in stored results, by paired tests.

    All neighbours are tested together: the probability of one or more wrong verdicts is at most 5%.
    It takes seconds.

    Exit codes:
    0: the ranks are tested.
    2: a result is missing or damaged, or results do not have the same scenes.
    """

    methods: Annotated[tuple[Path, ...], Positional, arg(metavar="FOLDER ...")]
    """Folder of each method: a result, or the results of one policy for each task below it."""


class RedrawnOptions(cli.Options):
    """Compares results of the same policies on public and on redrawn scenes.

    It gives the drop of each learner, and the mean of all with its 95% interval. It takes seconds.

    Exit codes:
    0: the results are compared.
    2: a result is missing or damaged, or results do not fit together.
    """

    public: Annotated[tuple[Path, ...], pydantic.Field(min_length=1)]
    """Folder of each learner's result on public scenes."""
    fresh: Annotated[tuple[Path, ...], pydantic.Field(min_length=1)]
    """Folders of the same learners' results on redrawn scenes, in the same order."""


def _observations(options: ObservationOptions) -> int:
    from fleet_tools.baselines.training.arms import observation_arms

    arms = observation_arms(options.dataset, options.architecture, options.lacking)
    return _run(options, arms)


def _demonstrations(options: DemonstrationOptions) -> int:
    from fleet_tools.baselines.training.arms import demonstration_arms

    arms = demonstration_arms(options.dataset, options.architecture, options.episodes)
    return _run(options, arms)


def _run(options: _LearningOptions, arms: Sequence["Arm"]) -> int:
    """Trains the missing policies, and stores the rows after each arm."""
    from fleet_tools.baselines import train
    from fleet_tools.baselines.training.arms import table_row
    from fleet_tools.baselines.training.config import PolicyOptions

    rows: list[dict[str, Any]] = []
    references: dict[tuple[str, str], Any] = {}
    trainings = [
        train.TrainOptions(
            dataset=(arm.dataset,),
            policy=PolicyOptions(
                architecture=arm.architecture,
                settings=(*options.settings, *arm.settings),
                observations=arm.observations,
            ),
            output=options.output / arm.folder,
            training=options.training,
            validation_fraction=arm.validation_fraction,
            rollouts=options.scenes,
            rollout_every=options.training.epochs,
            quiet=True,
        )
        for arm in arms
    ]
    for each in trainings:
        each.policy.read()  # before anything is trained
    code = cli.OK
    for number, (arm, training) in enumerate(zip(arms, trainings, strict=True), 1):
        if not options.quiet:
            print(f"{number}/{len(arms)}: {training.output}", file=sys.stderr)
        code, summary = train.learn(training)
        if code != cli.OK:
            break
        successes = summary["rollouts"][arm.task]
        rows.append(table_row(arm, successes, references.get((arm.task, arm.architecture))))
        references.setdefault((arm.task, arm.architecture), successes)
        _store(options.output / REPORT, rows)
    options.report(
        {"output": str(options.output), "rows": rows, "missing": len(arms) - len(rows)},
        lambda: _table(rows),
    )
    return code


def _store(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Writes the rows, and keeps the rows of other commands with the same output."""
    from fleet_tools.storage.atomic_files import write_file

    def key(row: dict[str, Any]) -> tuple[str, ...]:
        return row["task"], row["architecture"], row["arm"]

    former = json.loads(path.read_text())["rows"] if path.is_file() else []
    merged = {key(row): row for row in (*former, *rows)}
    write_file(path, json.dumps({"rows": [*merged.values()]}, indent=1) + "\n")


def _table(rows: Sequence[dict[str, Any]]) -> str:
    """Returns rows as a Markdown table."""
    lines = [
        "| task | architecture | policy | success | of the first policy's | difference, points |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        share, compared = row.get("of_first"), "-"
        if "difference" in row:
            low, high = map(_points, row["difference_interval"])
            compared = f"{_points(row['difference'])} ({low} to {high})"
        cells = [
            *(row["task"], row["architecture"], row["arm"]),
            f"{row['successes']} of {row['scenes']}",
            "-" if share is None else f"{100 * share:.0f}%",
            compared,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _points(share: float) -> str:
    return f"{100 * share:.1f}"


def _ranks(options: RankOptions) -> int:
    from fleet_tools.evaluation.audit import neighbouring_ranks

    pairs = neighbouring_ranks(options.methods)
    proven = sum(pair.proven for pair in pairs)

    def text() -> str:
        lines = [
            f"{'proven' if each.proven else 'not proven'}: {each.better} "
            f"({_points(each.rates[0])}%) above {each.worse} ({_points(each.rates[1])}%): "
            f"{_points(each.difference)} points ({_points(each.low)} to {_points(each.high)}), "
            f"p = {each.p_value:.2g}, {each.scenes} scenes"
            for each in pairs
        ]
        return "\n".join([*lines, f"{proven} of {len(pairs)} neighbouring ranks are proven."])

    summary = {"pairs": [each.model_dump() for each in pairs], "share": proven / len(pairs)}
    options.report(summary, text)
    return cli.OK


def _redrawn(options: RedrawnOptions) -> int:
    from fleet_tools.evaluation.audit import redrawn

    found = redrawn(options.public, options.fresh)
    pooled = found.pooled

    def text() -> str:
        lines = [f"{folder}: {_points(drop)} points" for folder, drop in found.drops.items()]
        total = (
            f"Redrawn scenes cost {_points(pooled.difference)} points ({_points(pooled.low)} to "
            f"{_points(pooled.high)}), mean of {len(lines)} learners."
        )
        return "\n".join([*lines, total])

    options.report(found.model_dump(), text)
    return cli.OK


PROGRAM = cli.Program(
    "baselines.audit",
    {
        "observations": cli.Command(ObservationOptions, _observations),
        "demonstrations": cli.Command(DemonstrationOptions, _demonstrations),
        "ranks": cli.Command(RankOptions, _ranks),
        "redrawn": cli.Command(RedrawnOptions, _redrawn),
    },
    description="Audits the benchmark: what tasks require, and which ranks results prove.",
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
