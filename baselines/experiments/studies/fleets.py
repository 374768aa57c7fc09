"""Fleets of networks, each of which learned its own part of the examples (`labelled.partition`).

They are merged, and the result is evaluated on all test examples. `common_init` is the control
without alignment: the same parts, but training from one initialization. Beside it are an untrained
network and a linear one with fitted last layers, gradients at the traffic of Fleet-Merge, and a
network that learns from all examples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

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
from fleet_tools.baselines.experiments.studies.training import (
    data_holder,
    evaluate,
    statistics_update,
)
from fleet_tools.baselines.merging.matching.soft_descent import Descent
from fleet_tools.baselines.merging.methods.fleet_merge import LISTING
from fleet_tools.baselines.merging.moments.rows import applied_maps
from fleet_tools.baselines.merging.problem import MergeProblem

STEPS = 40
"""Default number of steps of each descent."""

_REACH = 10.0
"""Rate times steps of each descent. Those from a matching of 512 units have to exceed 8.4 to leave
it, see `trust` of `fleet_merge`; 40 larger steps find what 100 of its default rate find."""

_EPOCHS = 2

CONTROLS = ("common_init", "fed_sgd", "untrained", "linear", "joint")
"""Columns that do not merge what the networks of a fleet have learned from different weights."""

PANELS = (
    "naive_average",
    "git_rebasin",
    "sinkhorn_data",
    "fleet_merge",
    "fleet_merge_monotone",
    "regmean",
    "least_squares",
    *CONTROLS,
)
"""Columns that are computed if none are chosen; the others are variants of Fleet-Merge."""


def fleet_columns(models: int, steps: int = STEPS) -> dict[str, MethodColumn]:
    """Returns the methods that merge fleets, and the controls, by title.

    The variants of `fleet_merge` differ from it in one point each, but for the listing; those with
    the names of the registry are the paper's. "in_turn" moves one model in each epoch instead of
    all, with as many descents. `sinkhorn_data` asks for as many gradients as `fleet_merge`, on
    examples of all models, and `fed_sgd` has its traffic.

    Args:
        models: Number of models of the fleet.
        steps: Number of steps of each descent.
    """
    descent = Descent(steps=steps, rate=_REACH / steps)

    def fleet_merge(method: str = "fleet_merge", **options: Any) -> MethodColumn:
        return MethodColumn(method, {"epochs": _EPOCHS, "descent": descent} | options)

    listing = replace(descent, noise=LISTING.noise, projection=LISTING.projection)
    in_turn: dict[str, Any] = {"participants": 1, "epochs": _EPOCHS * models}
    return {
        "naive_average": MethodColumn("naive_average"),
        "git_rebasin": MethodColumn("git_rebasin"),
        "sinkhorn_data": MethodColumn("sinkhorn_data", {"rounds": _EPOCHS, "descent": descent}),
        "fleet_merge": fleet_merge(),
        "fleet_merge_monotone": fleet_merge("fleet_merge_monotone"),
        "fleet_merge_listing": fleet_merge("fleet_merge_listing", descent=listing),
        "fleet_merge_soft": fleet_merge("fleet_merge_soft"),
        "fleet_merge_simplex": fleet_merge("fleet_merge_simplex"),
        "fleet_merge_average": fleet_merge("fleet_merge_average"),
        "fleet_merge_in_turn": fleet_merge(**in_turn),
        "fleet_merge_identity": fleet_merge(start="identity"),
        "fleet_merge_identity_in_turn": fleet_merge(start="identity", **in_turn),
        "fleet_merge_1_epoch": fleet_merge(epochs=1),
        "fleet_merge_4_epochs": fleet_merge(epochs=2 * _EPOCHS),
        "fleet_merge_half_steps": fleet_merge(descent=replace(descent, steps=max(1, steps // 2))),
        "regmean": MethodColumn("regmean", {"alignment": "activations"}),
        "least_squares": MethodColumn("least_squares", {"alignment": "activations"}),
        "common_init": MethodColumn("common_init", control=True),
        "fed_sgd": MethodColumn("fed_sgd", {"steps": _EPOCHS * steps}),
        "untrained": MethodColumn("head_refit", {"of": "base"}, control=True),
        "linear": MethodColumn("head_refit", {"of": "base"}, control=True),
        "joint": MethodColumn("naive_average"),
    }


def fleet_study(
    folder: Path,
    data: StudyData,
    fleets: Sequence[tuple[int, float]],
    seeds: int,
    name: str,
    methods: Sequence[str] = PANELS,
    steps: int = STEPS,
) -> Iterator[TableEntry]:
    """Computes, or reads, the accuracy of merged networks that learned different parts.

    Args:
        folder: Folder of the results.
        data: What they learn.
        fleets: For each kind of fleet the number of its networks, and the concentration of the
            Dirichlet distribution.
        seeds: Number of fleets of each kind.
        name: Name of the network, see `networks.network`.
        methods: Titles of columns, see `fleet_columns`.
        steps: See `fleet_columns`.
    """
    network, plain = data.network(name), linear(data.training.shape)
    for seed in range(seeds):
        joint = ModelSet(folder, f"joint-{name}", network, data, (data.training,), seed)
        for count, alpha in fleets:
            generator = np.random.default_rng((seed, round(1000 * alpha)))
            parts = partition(data.training, count, alpha, generator)
            kind = f"{count}-{alpha:g}"
            models = ModelSet(folder, f"fleet-{name}-{kind}", network, data, parts, seed)
            control = ModelSet(folder, f"fleet-linear-{kind}", plain, data, parts, seed)
            settings = {"alpha": alpha, "models": count}
            for title, column in fleet_columns(count, steps).items():
                if title not in methods:
                    continue
                of = {"linear": control, "joint": joint}.get(title, models)
                compute = partial(_fleet_values, of, column)
                value = of.result(title, column, {} if of is joint else settings, compute)
                yield TableEntry(title, f"{count} models, alpha {alpha:g}", seed, value, settings)


def _fleet_values(models: ModelSet, column: MethodColumn) -> dict[str, float]:
    network, data = models.network, models.data
    problem = MergeProblem(
        network.symmetry,
        models.load(column.control),
        data_holders=[data_holder(network, part) for part in models.parts],
        shared_data_holder=data_holder(network, data.training),
        affine_maps=applied_maps(network.make(), data.test.inputs[:2]),
        seed=models.seed,
        base=models.base if column.control else None,
    )
    merged, seconds = timed_merge(column, problem)
    state = statistics_update(network, data.training)(merged.state)
    loss, accuracy = evaluate(network, state, data.test)
    return {
        "accuracy": accuracy,
        "loss": loss,
        "single": mean_accuracy(network, problem.models, data.test),
        "seconds": seconds,
    }
