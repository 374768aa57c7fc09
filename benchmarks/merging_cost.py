"""The cost of merging: entered functions, and time. `python benchmarks/merging_cost.py`.

    python benchmarks/merging_cost.py --list             # the functions by name, too
    python benchmarks/merging_cost.py --table times
    python benchmarks/merging_cost.py --data data/hammer # of a round of a fleet, too

Functions are counted after one merge, so that functions on import do not count. `problem` begins
with a complete `MergeProblem`, as a round of a fleet does. `models` begins with modules and
loaders, and makes tables and data holders. `table` also has a table, which is checked.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import numpy as np
import torch
from scaffold import ROOT, cpu_seconds, main_of, report_rows
from torch import nn

from fleet_merging import MergeProblem, merge, problem_of
from fleet_merging.matching.weights import match_weights
from fleet_merging.symmetry import layers
from fleet_merging.symmetry.table import Symmetry
from fleet_tools.config.values import Count
from fleet_tools.utils import cli

MERGES: dict[str, dict[str, Any]] = {
    "naive_average": {},
    "git_rebasin": {},
    "fleet_merge": {"epochs": 1, "steps": 5},
    "density_gated_ensemble": {},
}
"""Methods to count functions of, with their options."""

MLP = Symmetry.of(layers.mlp(["0", "2", "4", "6", "8"], ["_", "h1", "h2", "h3", "h4", "_"]))


class MergingCostOptions(cli.Options):
    """Counts the project's functions and files that merges enter, and measures times of merges.

    A function counts once, for any number of calls; nested functions count as the outer one. Times
    are seconds of processor on one thread, the best of three. Untrained networks have four hidden
    layers.
    """

    table: Literal["functions", "times"] = "functions"
    """The measured quantity."""
    data: Path | None = None
    """Folder of a dataset for a fleet of three robots; two of its rounds are counted, too."""
    list: bool = False
    """Print the functions, too."""
    widths: tuple[Count, ...] = (512, 1024)
    """Widths of two networks that are matched."""
    models: tuple[Count, ...] = (10, 100)
    """Numbers of networks to merge, with 64 units in a layer; 1000 take minutes."""


def traced(action: Callable[[], object]) -> set[tuple[str, str]]:
    """Returns the files and qualified names of the project's functions that an action calls."""
    found: set[tuple[Path, str]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and not code.co_filename.startswith("<"):  # generated code
            found.add((Path(code.co_filename), code.co_qualname.partition(".<locals>")[0]))

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    own = {(path.resolve(), name) for path, name in found}
    return {
        (str(path.relative_to(ROOT)), name)
        for path, name in own
        if path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / "benchmarks")
    }


def mlp(*widths: int, seed: int) -> nn.Module:
    """Returns a network with weights drawn by a seed."""
    torch.manual_seed(seed)
    modules = [module for i, o in pairwise(widths) for module in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*modules[:-1])


def merges() -> Iterator[tuple[str, str, set[tuple[str, str]]]]:
    """Yields the functions of merges of two networks: the method, its start, and the functions."""
    models = [mlp(8, 32, 32, 3, seed=seed) for seed in range(2)]
    data = [[(torch.randn(64, 8), torch.randn(64, 3))] for _ in models]
    table = problem_of(models, data=data, method="git_rebasin").symmetry
    for method, options in MERGES.items():
        problem = problem_of(models, data=data, method=method)
        actions: dict[str, Callable[[], object]] = {
            "problem": lambda m=method, o=options, p=problem: merge(m, p, **o),
            "models": lambda m=method, o=options: merge(m, models, data=data, **o),
            "table": lambda m=method, o=options: merge(m, models, data=data, symmetry=table, **o),
        }
        for begin, action in actions.items():
            action()
            yield method, begin, traced(action)


def rounds(data: Path) -> Iterator[tuple[str, str, set[tuple[str, str]]]]:
    """Yields the functions of the first round of a fleet, which opens the data, and the second."""
    from fleet_tools.baselines.federated.config import FleetConfig
    from fleet_tools.baselines.federated.plan import FleetPlan
    from fleet_tools.baselines.federated.rounds import run_round
    from fleet_tools.baselines.federated.transport import LocalTransport
    from fleet_tools.config.values import parse

    for method in ("naive_average", "git_rebasin", "fleet_merge"):
        settings: dict[str, Any] = {
            "data": [str(data)],
            "policy": {"body": {"type": "mlp", "layers": 2, "width": 8}},
            "method": method,
            "options": {"epochs": 1, "steps": 3} if method == "fleet_merge" else {},
            "robots": 3,
            "split": {"by": "nothing"},
            "training": {"epochs": 2, "batch_size": 64},
            "merge_every": 1,
        }
        plan = FleetPlan.of(parse(FleetConfig, settings, "The benchmark"))
        transport, weights = LocalTransport(plan.assignments), None
        for number in (1, 2):
            results = []
            seen = traced(lambda: results.append(run_round(plan, transport, number, weights)))  # noqa: B023
            weights = results[0].weights
            yield method, f"round {number}", seen


def _counted(options: MergingCostOptions) -> Iterator[dict[str, Any]]:
    for source in (merges(), rounds(options.data) if options.data else ()):
        for method, begin, found in source:
            files = {file for file, _ in found}
            row = {"method": method, "of": begin, "functions": len(found), "files": len(files)}
            yield row | {"listed": sorted(found) if options.list else []}


def _timed(options: MergingCostOptions) -> Iterator[dict[str, Any]]:
    def states(width: int, count: int) -> list[dict[str, torch.Tensor]]:
        sizes = (64, *[width] * 4, 10)
        return [mlp(*sizes, seed=seed).state_dict() for seed in range(count)]

    def best(work: Callable[[], object], of: int = 3) -> float:
        return min(cpu_seconds(work) for _ in range(of))

    for width in options.widths:
        one, two = states(width, 2)
        work = lambda o=one, t=two: match_weights(MLP, o, t, np.random.default_rng(0))  # noqa: E731
        yield {"merge": f"matching of 2 MLPs 4 x {width}", "seconds": best(work)}
    for count in options.models:
        problem = MergeProblem(MLP, states(64, count))
        seconds = best(lambda p=problem: merge("git_rebasin", p), of=1)
        yield {"merge": f"git_rebasin of {count} MLPs 4 x 64", "seconds": seconds}


def _measure(options: MergingCostOptions) -> int:
    torch.set_num_threads(1)  # as robots do

    def cells(row: dict[str, Any]) -> list[str]:
        *shown, listed = row.values()
        lines = "".join(f"\n    {file}: {name}" for file, name in listed)
        return [*map(str, shown[:-1]), f"{shown[-1]}{lines}"]

    if options.table == "functions":
        report_rows(options, ("method", "of", "functions", "files"), _counted(options), cells)
    else:
        report_rows(
            options,
            ("merge", "seconds"),
            _timed(options),
            lambda row: (row["merge"], f"{row['seconds']:.3f}"),
        )
    return cli.OK


main = main_of(__file__, MergingCostOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())
