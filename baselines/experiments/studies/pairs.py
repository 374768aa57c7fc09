"""Pairs of networks that learned the same examples, from different weights and in different orders.

They are aligned; then the barrier of the test loss (section 3 of the paper) and the test accuracy
of their average are measured.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fleet_tools.baselines.experiments.studies.model_sets import (
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
from fleet_tools.baselines.merging.barrier import loss_barrier
from fleet_tools.baselines.merging.matching.soft_descent import Descent
from fleet_tools.baselines.merging.problem import MergeProblem
from fleet_tools.baselines.merging.symmetry.table import State

PAIRS = {
    "naive": MethodColumn("naive_average"),
    "common init": MethodColumn("common_init", control=True),
    "matching": MethodColumn("git_rebasin"),
    "gradient": MethodColumn("sinkhorn_data"),
    "both": MethodColumn("sinkhorn_data", {"start": "matching", "trust": 0.9}),
}
"""Methods that align pairs, by title. The last two descend, see `descent_for`: from the identity,
and from the matching."""


def descent_for(name: str) -> Descent:
    """Returns the descent of soft permutations for the pairs of a network.

    Transformers require larger steps; the numbers were chosen on pairs of seed 0.
    """
    return Descent(steps=500, rate=0.5) if name == "transformer" else Descent(steps=200)


def pair_study(
    folder: Path, data: StudyData, names: Sequence[str], seeds: int
) -> Iterator[TableEntry]:
    """Computes, or reads, the barriers between pairs of networks.

    Args:
        folder: Folder of the results.
        data: What they learn.
        names: Names of networks, see `networks.network`.
        seeds: Number of pairs of each network.
    """
    for seed in range(seeds):
        for name in names:
            parts = (data.training, data.training)
            models = ModelSet(folder, f"pair-{name}", data.network(name), data, parts, seed)
            for title, column in PAIRS.items():
                if column.method == "sinkhorn_data":
                    options = {**column.options, "descent": descent_for(name)}
                    column = replace(column, options=options)
                compute = partial(_pair_values, models, column)
                yield TableEntry(name, title, seed, models.result(title, column, {}, compute))


def _pair_values(models: ModelSet, column: MethodColumn) -> dict[str, float]:
    network, training, test = models.network, models.parts[0], models.data.test
    problem = MergeProblem(
        network.symmetry,
        models.load(column.control),
        shared_data_holder=data_holder(network, training),
        seed=models.seed,
    )
    merged, seconds = timed_merge(column, problem)
    update = statistics_update(network, training)

    def test_loss(state: State) -> float:
        return evaluate(network, update(state), test)[0]

    first, second = problem.permuted(merged.permutations)
    return {
        "barrier": loss_barrier(test_loss, first, second).height,
        "accuracy": evaluate(network, update(merged.state), test)[1],
        "single": mean_accuracy(network, problem.models, test),
        "seconds": seconds,
    }
