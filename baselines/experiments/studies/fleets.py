"""Fleets of networks, each of which learned its own part of the examples (`labelled.partition`).

They are merged, and the result is evaluated on all test examples. `common_init` is the control
without alignment: the same parts, but training from one initialization. Beside it are an untrained
network and a linear one with fitted last layers, gradients at the traffic of Fleet-Merge, and a
network that learns from all examples.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from fleet_tools.baselines.experiments.studies.labelled import partition
from fleet_tools.baselines.experiments.studies.model_sets import (
    MethodColumn,
    ModelSet,
    StudyData,
    mean_accuracy,
    timed_merge,
)
from fleet_tools.baselines.experiments.studies.networks import linear
from fleet_tools.baselines.experiments.studies.tables import TableEntry
from fleet_tools.baselines.experiments.studies.training import data_holder, evaluate
from fleet_tools.baselines.merging.matching.soft_descent import Descent
from fleet_tools.baselines.merging.moments.rows import applied_maps
from fleet_tools.baselines.merging.problem import MergeProblem

FLEETS = {
    "naive": MethodColumn("naive_average"),
    "common init": MethodColumn("common_init", control=True),
    "matching": MethodColumn("git_rebasin"),
    "fleet_merge": MethodColumn("fleet_merge", {"epochs": 2, "descent": Descent(steps=60)}),
    "monotone": MethodColumn("fleet_merge_monotone", {"epochs": 2, "descent": Descent(steps=60)}),
    "gradients": MethodColumn("fed_sgd", {"steps": 120}),
    "regmean": MethodColumn("regmean", {"alignment": "activations"}),
    "least squares": MethodColumn("least_squares", {"alignment": "activations"}),
    "untrained": MethodColumn("head_refit", {"of": "base"}, control=True),
}
"""Methods that merge fleets, by title, and controls; "gradients" has the traffic of "fleet_merge".
"""

_LINEAR = MethodColumn("head_refit", {"of": "base"}, control=True)
_JOINT = MethodColumn("naive_average")


def fleet_study(
    folder: Path,
    data: StudyData,
    fleets: Sequence[tuple[int, float]],
    seeds: int,
    name: str,
) -> Iterator[TableEntry]:
    """Computes, or reads, the accuracy of merged networks that learned different parts.

    Args:
        folder: Folder of the results.
        data: What they learn.
        fleets: For each kind of fleet the number of its networks, and the concentration of the
            Dirichlet distribution.
        seeds: Number of fleets of each kind.
        name: Name of the network, see `networks.network`.
    """
    network, plain = data.network(name), linear(data.training.shape)
    for seed in range(seeds):
        joint = ModelSet(folder, f"joint-{name}", network, data, (data.training,), seed)
        for count, alpha in fleets:
            generator = np.random.default_rng((seed, round(1000 * alpha)))
            parts = partition(data.training, count, alpha, generator)
            kind, row = f"{count}-{alpha:g}", f"{count} models, alpha {alpha:g}"
            models = ModelSet(folder, f"fleet-{name}-{kind}", network, data, parts, seed)
            control = ModelSet(folder, f"fleet-linear-{kind}", plain, data, parts, seed)
            settings = {"alpha": alpha, "models": count}
            for of, title, column in (
                *((models, title, column) for title, column in FLEETS.items()),
                (control, "linear", _LINEAR),
                (joint, "joint", _JOINT),
            ):
                compute = partial(_fleet_values, of, column)
                value = of.result(title, column, {} if of is joint else settings, compute)
                yield TableEntry(row, title, seed, value)


def _fleet_values(models: ModelSet, column: MethodColumn) -> dict[str, float]:
    network, test = models.network, models.data.test
    problem = MergeProblem(
        network.symmetry,
        models.load(column.control),
        data_holders=[data_holder(network, part) for part in models.parts],
        affine_maps=applied_maps(network.make(), test.inputs[:2]),
        seed=models.seed,
        base=models.base if column.control else None,
    )
    merged, seconds = timed_merge(column, problem)
    loss, accuracy = evaluate(network, merged.state, test)
    return {
        "accuracy": accuracy,
        "loss": loss,
        "single": mean_accuracy(network, problem.models, test),
        "seconds": seconds,
    }
