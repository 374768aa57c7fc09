"""Merging of networks that learn labelled images, away from robots.

Pairs: two networks trained on the same data, from different weights and in a different order. They
are aligned; then the barrier of the test loss (section 3 of the paper) and the test accuracy of
their average are measured.

Fleets: several networks, each trained on its own part of the data (`labelled.partition`). They are
merged, and the average is evaluated on all test data. `common_init` is the control without
alignment: the same parts, but training from one initialization. Beside them are an untrained
network and a linear one with fitted last layers, gradients at the traffic of Fleet-Merge, and a
network that learns from all data.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fleet_tools.baselines.experiments.result_cache import ResultCache
from fleet_tools.baselines.experiments.studies.labelled import Labelled, partition
from fleet_tools.baselines.experiments.studies.networks import NETWORKS, Network, linear
from fleet_tools.baselines.experiments.studies.tables import TableEntry
from fleet_tools.baselines.experiments.studies.training import (
    TrainingSettings,
    data_holder,
    evaluate,
    initial_weights,
    statistics_update,
    train,
)
from fleet_tools.baselines.merging.barrier import loss_barrier
from fleet_tools.baselines.merging.matching.soft_descent import Descent
from fleet_tools.baselines.merging.methods.registry import merge
from fleet_tools.baselines.merging.model_files import read_model, read_notes, write_model
from fleet_tools.baselines.merging.moments.rows import applied_maps
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult
from fleet_tools.baselines.merging.symmetry.table import State


@dataclass(frozen=True)
class MethodColumn:
    """A method with its options, a column of a table.

    Attributes:
        method: Name of the method, see `merging.methods.registry`.
        options: Its options.
        control: Whether the models are trained from one initialization.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    control: bool = False


PAIRS = {
    "naive": MethodColumn("naive_average"),
    "common init": MethodColumn("common_init", control=True),
    "matching": MethodColumn("git_rebasin"),
    "gradient": MethodColumn("sinkhorn_data"),
    "both": MethodColumn("sinkhorn_data", {"start": "matching", "trust": 0.9}),
}
"""Methods that align pairs, by title. The last two descend, see `descent_for`: from the identity,
and from the matching."""

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


TRAINING = TrainingSettings(epochs=40)


@dataclass(frozen=True, eq=False)
class StudyData:
    """What networks learn in a study, and how.

    Attributes:
        name: Name of the images, see `sources.SOURCES`.
        training: Images for training.
        test: Images for the test.
        settings: Settings of training.
    """

    name: str
    training: Labelled
    test: Labelled
    settings: TrainingSettings

    def network(self, name: str) -> Network:
        """Returns one of `NETWORKS` for these images."""
        return NETWORKS[name](self.training.shape)

    def facts(self) -> dict[str, Any]:
        """Returns what results depend on, as plain JSON data."""
        return {
            "data": self.name,
            "images": len(self.training),
            "training": asdict(self.settings),
        }


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
        names: Names of networks, see `NETWORKS`.
        seeds: Number of pairs of each network.
    """
    for seed in range(seeds):
        for name in names:
            parts = (data.training, data.training)
            models = _ModelSet(folder, f"pair-{name}", data.network(name), data, parts, seed)
            for title, column in PAIRS.items():
                if column.method == "sinkhorn_data":
                    options = {**column.options, "descent": descent_for(name)}
                    column = replace(column, options=options)
                compute = partial(_pair_values, models, column)
                yield TableEntry(name, title, seed, models.result(title, column, {}, compute))


def fleet_study(
    folder: Path,
    data: StudyData,
    fleets: Sequence[tuple[int, float]],
    seeds: int,
    name: str = "mlp",
) -> Iterator[TableEntry]:
    """Computes, or reads, the accuracy of merged networks that learned different parts.

    Args:
        folder: Folder of the results.
        data: What they learn.
        fleets: For each kind of fleet the number of its networks, and the concentration of the
            Dirichlet distribution.
        seeds: Number of fleets of each kind.
        name: Name of the network, see `NETWORKS`.
    """
    network, plain = data.network(name), linear(data.training.shape)
    for seed in range(seeds):
        joint = _ModelSet(folder, f"joint-{name}", network, data, (data.training,), seed)
        for count, alpha in fleets:
            generator = np.random.default_rng((seed, round(1000 * alpha)))
            parts = partition(data.training, count, alpha, generator)
            kind, row = f"{count}-{alpha:g}", f"{count} models, alpha {alpha:g}"
            models = _ModelSet(folder, f"fleet-{name}-{kind}", network, data, parts, seed)
            control = _ModelSet(folder, f"fleet-linear-{kind}", plain, data, parts, seed)
            settings = {"alpha": alpha, "models": count}
            for of, title, column in (
                *((models, title, column) for title, column in FLEETS.items()),
                (control, "linear", _LINEAR),
                (joint, "joint", _JOINT),
            ):
                compute = partial(_fleet_values, of, column)
                value = of.result(title, column, {} if of is joint else settings, compute)
                yield TableEntry(row, title, seed, value)


@dataclass(frozen=True)
class _ModelSet:
    """Networks to be merged, which are trained once and stored.

    Attributes:
        folder: Folder of the study.
        name: Name of the set in file names, such as "pair-mlp".
        network: Their architecture.
        data: What they learn, and how.
        parts: Training data of each.
        seed: Seed of the set.
    """

    folder: Path
    name: str
    network: Network
    data: StudyData
    parts: Sequence[Labelled]
    seed: int

    def load(self, control: bool) -> list[dict[str, torch.Tensor]]:
        """Returns the networks' weights.

        Args:
            control: Whether they are trained from one initialization.
        """
        models = []
        for index, part in enumerate(self.parts):
            own_seed = len(self.parts) * self.seed + index
            common = control and index > 0  # the first is the same
            name = f"{self.name}-{'common' if common else 'own'}-{own_seed}.safetensors"
            path = self.folder / "models" / name
            if not path.is_file() or read_notes(path) != self._training_settings():
                path.parent.mkdir(parents=True, exist_ok=True)
                start = self.base if control else initial_weights(self.network, own_seed)
                weights = train(self.network, start, part, self.data.settings, own_seed)
                write_model(path, weights, self._training_settings())
            models.append(read_model(path))
        return models

    @property
    def base(self) -> dict[str, torch.Tensor]:
        """The initialization that all have in common, where they have one."""
        return initial_weights(self.network, len(self.parts) * self.seed)

    def result(
        self,
        title: str,
        column: MethodColumn,
        settings: Mapping[str, Any],
        compute: Callable[[], dict[str, float]],
    ) -> dict[str, float]:
        """Returns a stored result, or computes and stores it.

        Args:
            title: Title of the column.
            column: The method.
            settings: Settings of the study on which the result depends, too.
            compute: Computes the result.
        """
        return ResultCache(self.folder).get_or_compute(
            f"{self.name}-{title.replace(' ', '_')}-{self.seed}",
            {**self._training_settings(), **settings, **asdict(column)},
            compute,
        )

    def _training_settings(self) -> dict[str, Any]:
        return {"network": self.network.title, **self.data.facts()}


def _pair_values(models: _ModelSet, column: MethodColumn) -> dict[str, float]:
    network, training, test = models.network, models.parts[0], models.data.test
    problem = MergeProblem(
        network.symmetry,
        models.load(column.control),
        shared_data_holder=data_holder(network, training),
        seed=models.seed,
    )
    merged, seconds = _timed_merge(column, problem)
    update = statistics_update(network, training)

    def test_loss(state: State) -> float:
        return evaluate(network, update(state), test)[0]

    first, second = problem.permuted(merged.permutations)
    return {
        "barrier": loss_barrier(test_loss, first, second).height,
        "accuracy": evaluate(network, update(merged.state), test)[1],
        "single": _mean_accuracy(network, problem.models, test),
        "seconds": seconds,
    }


def _fleet_values(models: _ModelSet, column: MethodColumn) -> dict[str, float]:
    network, test = models.network, models.data.test
    problem = MergeProblem(
        network.symmetry,
        models.load(column.control),
        data_holders=[data_holder(network, part) for part in models.parts],
        affine_maps=applied_maps(network.make(), test.images[:2]),
        seed=models.seed,
        base=models.base if column.control else None,
    )
    merged, seconds = _timed_merge(column, problem)
    loss, accuracy = evaluate(network, merged.state, test)
    return {
        "accuracy": accuracy,
        "loss": loss,
        "single": _mean_accuracy(network, problem.models, test),
        "seconds": seconds,
    }


def _timed_merge(column: MethodColumn, problem: MergeProblem) -> tuple[MergeResult, float]:
    """Returns the merge, and its wall time in s."""
    started = time.perf_counter()
    merged = merge(column.method, problem, **column.options)
    return merged, round(time.perf_counter() - started, 2)


def _mean_accuracy(network: Network, models: Sequence[State], test: Labelled) -> float:
    return float(np.mean([evaluate(network, model, test)[1] for model in models]))
