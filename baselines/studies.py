"""Runs a study and prints its table: `python -m fleet_tools.baselines.studies oracles --seeds 3`.

Every cell is stored as it is computed, so the same command goes on where it was stopped, and one
with more seeds computes only what is new.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_tools.utils import cli as programs

# PyTorch is imported once the arguments are known to be good.
if TYPE_CHECKING:
    from fleet_tools.baselines.experiments.studies.tables import Cell

NETWORKS = ("mlp", "elman", "lstm", "gru", "cnn", "transformer")
FLEETS = "fleets"


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; see `--help`."""
    return programs.run(_parser(), programs.run_command, arguments)


def _parser() -> argparse.ArgumentParser:
    parser, studies = programs.command_parser(
        "fleet_tools.baselines.studies",
        "Runs a study of merging; goes on with one that was interrupted.",
        "Exits with 0 when the table is complete, 1 when the disk failed, 2 when it cannot begin, "
        "130 after Ctrl-C.",
    )
    oracles = _add(studies, "oracles", _oracles, "barriers and accuracies on scikit-learn's digits")
    oracles.add_argument(
        "--only", metavar="NAME", nargs="+", choices=[*NETWORKS, FLEETS],
        help=f"of {', '.join(NETWORKS)} (pairs), and {FLEETS} (five models under Dirichlet alpha)",
    )  # fmt: skip
    online = _add(studies, "online", _online, "REINFORCE on CartPole, averaged now and then")
    online.add_argument(
        "--episodes",
        metavar="N",
        type=programs.positive_int,
        default=2000,
        help="of each agent (2000)",
    )
    return parser


def _add(studies, name: str, work, description: str) -> argparse.ArgumentParser:
    parser = programs.add_command(studies, name, work, description)
    parser.add_argument("--seeds", metavar="N", type=programs.positive_int, default=3)
    parser.add_argument(
        "--output", metavar="DIR", type=Path, default=Path("data/studies") / name,
        help=f"the folder of its cells (data/studies/{name})",
    )  # fmt: skip
    return parser


def _oracles(options: argparse.Namespace) -> int:
    from fleet_tools.baselines.experiments.studies.oracles import ALPHAS, fleets, pairs
    from fleet_tools.baselines.experiments.studies.tables import by_column

    chosen = list(dict.fromkeys(options.only or [*NETWORKS, FLEETS]))
    networks = [name for name in chosen if name != FLEETS]
    of_pairs = _gathered(pairs(options.output, networks, options.seeds), options)
    of_fleets = []
    if FLEETS in chosen:
        of_fleets = _gathered(fleets(options.output, ALPHAS, options.seeds), options)
    tables = []
    if of_pairs:
        tables += [
            by_column(of_pairs, "barrier", "barrier of pairs"),
            by_column(of_pairs, "accuracy", "accuracy of averages"),
        ]
    if of_fleets:
        tables.append(by_column(of_fleets, "accuracy", "accuracy of five, by alpha"))
    return _printed(options, [*of_pairs, *of_fleets], tables)


def _online(options: argparse.Namespace) -> int:
    from fleet_tools.baselines.experiments.studies.online import online
    from fleet_tools.baselines.experiments.studies.tables import by_quantity

    cells = _gathered(online(options.output, options.episodes, options.seeds), options)
    return _printed(options, cells, [by_quantity(cells, "mean returns")])


def _gathered(cells: Iterable["Cell"], options: argparse.Namespace) -> list["Cell"]:
    """All cells, each told on stderr when it is there."""
    gathered = []
    for cell in cells:
        gathered.append(cell)
        if not (options.quiet or options.json):
            numbers = ", ".join(f"{name} {value:.4g}" for name, value in cell.value.items())
            title = " ".join(filter(None, [cell.row, cell.column]))
            print(f"{title}, seed {cell.seed}: {numbers}", file=sys.stderr, flush=True)
    return gathered


def _printed(options: argparse.Namespace, cells: list["Cell"], tables: list[str]) -> int:
    if options.json:
        print(json.dumps({"folder": str(options.output), "cells": [asdict(c) for c in cells]}))
    elif not options.quiet:
        print("\n\n".join(tables))
        if options.seeds > 1:
            print(f"\nMedians over {options.seeds} seeds, with the lowest and the highest.")
    return programs.OK


if __name__ == "__main__":
    sys.exit(main())
