"""Pairs of networks that learned the same examples, from different weights and in different orders.

They are aligned; then the barrier of the test loss (section 3 of the paper) and the test accuracy
of their average are measured. The closed-form methods are controls: what they return is not on the
line between the networks, and so it has an accuracy, but no barrier.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fleet_tools.baselines.experiments.studies.model_sets import (
    CLOSED_FORMS,
    MethodColumn,
    ModelSet,
    StudyData,
    mean_accuracy,
    timed_merge,
)
from fleet_tools.baselines.experiments.studies.tables import TableEntry
from fleet_tools.baselines.experiments.studies.training import (
    data_holder,
    evaluate,
    statistics_update,
)
from fleet_tools.baselines.merging.average import interpolate
from fleet_tools.baselines.merging.barrier import POINTS, Barrier, lambdas_of
from fleet_tools.baselines.merging.matching.soft_descent import Descent
from fleet_tools.baselines.merging.moments.rows import applied_maps
from fleet_tools.baselines.merging.problem import MergeProblem


def pair_columns(name: str, steps: int | None = None) -> dict[str, MethodColumn]:
    """Returns the methods that align the pairs of a network, by title.

    Args:
        name: Name of the network. Transformers require more and larger steps; the numbers were
            chosen on pairs of seed 0.
        steps: Number of steps of each descent; 200, and 500 for transformers, if None.
    """
    rate, default = (0.5, 500) if name == "transformer" else (0.1, 200)
    descent = Descent(steps=steps or default, rate=rate)
    return {
        "naive_average": MethodColumn("naive_average"),
        "common_init": MethodColumn("common_init", control=True),
        "git_rebasin": MethodColumn("git_rebasin"),
        "sinkhorn_data": MethodColumn("sinkhorn_data", {"descent": descent}),
        "sinkhorn_data_matched": MethodColumn(
            "sinkhorn_data", {"start": "matching", "trust": 0.9, "descent": descent}
        ),
        "regmean": MethodColumn("regmean", {"alignment": "activations"}),
        "least_squares": MethodColumn("least_squares", {"alignment": "activations"}),
    }


def pair_study(
    folder: Path,
    data: StudyData,
    names: Sequence[str],
    seeds: int,
    methods: Sequence[str] = (),
    steps: int | None = None,
) -> Iterator[TableEntry]:
    """Computes, or reads, the barriers between pairs of networks.

    Args:
        folder: Folder of the results.
        data: What they learn.
        names: Names of networks, see `networks.network`.
        seeds: Number of pairs of each network.
        methods: Titles of columns, see `pair_columns`; all if empty.
        steps: See `pair_columns`.
    """
    for seed in range(seeds):
        for name in names:
            parts = (data.training, data.training)
            models = ModelSet(folder, f"pair-{name}", data.network(name), data, parts, seed)
            for title, column in pair_columns(name, steps).items():
                if methods and title not in methods:
                    continue
                value = models.result(title, column, {}, partial(_pair_values, models, column))
                curves = value.pop("curves", {})
                yield TableEntry(title, name, seed, value, curves=curves)


def _pair_values(models: ModelSet, column: MethodColumn) -> dict[str, Any]:
    network, training, test = models.network, models.parts[0], models.data.test
    holder = data_holder(network, training)
    problem = MergeProblem(
        network.symmetry,
        models.load(column.control),
        data_holders=[holder, holder],
        shared_data_holder=holder,
        affine_maps=applied_maps(network.make(), test.inputs[:2]),
        seed=models.seed,
    )
    merged, seconds = timed_merge(column, problem)
    update = statistics_update(network, training)
    value = {
        "accuracy": evaluate(network, update(merged.state), test)[1],
        "single": mean_accuracy(network, problem.models, test),
        "seconds": seconds,
    }
    if column.method in CLOSED_FORMS:
        return value
    first, second = problem.permuted(merged.permutations)
    lambdas = lambdas_of(POINTS)
    on_line = (update(interpolate(first, second, float(position))) for position in lambdas)
    losses, accuracies = zip(*(evaluate(network, state, test) for state in on_line), strict=True)
    barrier = Barrier.of_losses(lambdas, losses).height
    return {"barrier": barrier, **value, "curves": {"loss": losses, "accuracy": accuracies}}
