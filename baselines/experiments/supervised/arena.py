"""The arena of labelled examples: networks learn parts of them, are merged, and are tested.

Lines join networks that share all examples (section 3 of the paper). Networks of different parts
(`labelled.partition`) are merged. A method without a result on the line between two networks has
an accuracy, but no barrier.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from fleet_merging.average import interpolate
from fleet_merging.barrier import Barrier, lambdas_of
from fleet_merging.errors import UnsoundMergeError
from fleet_merging.methods.options import MethodOptions, keyword_arguments
from fleet_merging.methods.registry import merge
from fleet_merging.moments.affine_maps import require_measurable
from fleet_merging.moments.rows import applied_maps
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.symmetry.table import State
from fleet_tools.baselines.experiments.arena import may_fail
from fleet_tools.baselines.experiments.cells import Cells
from fleet_tools.baselines.experiments.form import Experiment, Run
from fleet_tools.baselines.experiments.supervised import sources
from fleet_tools.baselines.experiments.supervised.labelled import Labelled, partition
from fleet_tools.baselines.experiments.supervised.networks import Network, network
from fleet_tools.baselines.experiments.supervised.training import (
    TrainingSettings,
    data_holder,
    evaluate,
    initial_weights,
    statistics_update,
    train,
)
from fleet_tools.baselines.model_files import read_model, read_notes, write_model
from fleet_tools.config.values import Count, Positive, Value
from fleet_tools.errors import ConfigError

CLOSED_FORMS = ("regmean", "least_squares")
"""Methods that measure second moments of the inputs of all layers."""


class SupervisedConfig(Value):
    """Configuration of networks, and of their merge.

    Attributes:
        data: The name of a set of examples, see `sources.SOURCES`.
        data_root: Folder with its files, if it has files.
        examples: Number of examples for training; None for all.
        test_examples: Number of examples for the test; None for all.
        network: Name of the network, see `networks.network`.
        training: Settings of training.
        models: Number of networks that are merged.
        alpha: Concentration of the Dirichlet distribution that divides examples among the networks;
            None lets each learn all of them.
        method: Merging method, a name or module:function; see `merging.methods.registry.find`.
        options: Options of the method and of its `Descent`, by name.
        initialization: "own" draws initial weights for each network, "common" the same for all.
    """

    data: tuple[str]
    data_root: Path | None = None
    examples: Count | None = None
    test_examples: Count | None = None
    network: str
    training: TrainingSettings = TrainingSettings()
    models: Count = 2
    alpha: Positive | None = None
    method: str
    options: MethodOptions = {}
    initialization: Literal["own", "common"] = "own"


@dataclass(frozen=True, eq=False)
class ModelSet:
    """Networks to be merged, trained once and stored.

    Attributes:
        config: Their configuration.
        seed: Seed of the set.
    """

    config: SupervisedConfig
    seed: int

    @cached_property
    def network(self) -> Network:
        """Their architecture."""
        return network(self.config.network, self.training.shape)

    @cached_property
    def training(self) -> Labelled:
        """All examples for training."""
        return self._split[0].first(self.config.examples)

    @cached_property
    def test(self) -> Labelled:
        """All examples for the test."""
        return self._split[1].first(self.config.test_examples)

    @property
    def _split(self) -> sources.Split:
        return _loaded(self.config.data[0], self.config.data_root)

    @cached_property
    def parts(self) -> Sequence[Labelled]:
        """The examples of each network."""
        config, training = self.config, self.training
        if config.alpha is None:
            return [training] * config.models
        generator = np.random.default_rng((self.seed, round(1000 * config.alpha)))
        return partition(training, config.models, config.alpha, generator)

    def depends(self) -> dict[str, Any]:
        """Returns the inputs of trained networks, as plain JSON data."""
        config = self.config
        return {
            "network": self.network.title,
            "data": config.data[0],
            "examples": len(self.training),
            "training": config.training.model_dump(),
            "models": config.models,
            "alpha": config.alpha,
            "seed": self.seed,
        }

    def load(self, folder: Path) -> list[dict[str, torch.Tensor]]:
        """Returns the networks' weights.

        Args:
            folder: Folder of the experiment, which stores them.
        """
        config, depends = self.config, self.depends()
        name = f"{config.network}-{config.models}-{config.alpha}"
        models = []
        for index, part in enumerate(self.parts):
            own_seed = config.models * self.seed + index
            common = config.initialization == "common" and index > 0  # the first is the same
            path = folder / "models" / f"{name}-{'common' if common else 'own'}-{own_seed}"
            path = path.with_name(f"{path.name}.safetensors")
            if not path.is_file() or read_notes(path) != depends:
                path.parent.mkdir(parents=True, exist_ok=True)
                start = self.base if common else initial_weights(self.network, own_seed)
                weights = train(self.network, start, part, config.training, own_seed)
                write_model(path, weights, depends)
            models.append(read_model(path))
        return models

    @property
    def base(self) -> dict[str, torch.Tensor]:
        """The common initialization of all networks, if they have one."""
        return initial_weights(self.network, self.config.models * self.seed)


@dataclass(frozen=True)
class PlannedSet:
    """A run of an experiment.

    Attributes:
        models: The networks.
        arm: Name of the reference, if it is one.
    """

    models: ModelSet
    reference: str | None


class Supervised:
    """Networks on labelled examples; the keys of runs are in `SupervisedConfig`.

    Args:
        experiment: The experiment.
    """

    references: ClassVar[tuple[str, ...]] = ("joint", "single")

    def __init__(self, experiment: Experiment) -> None:
        self._lines = experiment.lines
        torch.set_num_threads(1)  # so that bits do not depend on the machine

    def plan(self, run: Run) -> PlannedSet:
        """See `ExperimentArena`. "joint" learns all examples, "single" is each network alone."""
        changes: dict[str, Any] = {"method": "naive_average"} if run.is_reference else {}
        if run.is_reference and run.arm == "joint":
            changes |= {"models": 1, "alpha": None}
        config = run.parsed(SupervisedConfig, **changes)
        keyword_arguments(config.method, config.options)
        if self._lines is not None and config.models != 2 and not run.is_reference:
            raise ConfigError(f"{run.title}: lines are between two models, not {config.models}.")
        models = ModelSet(config, run.seed)
        module = models.network.make()
        if config.method in CLOSED_FORMS:
            require_measurable(applied_maps(module, models.test.inputs[:2]), module.state_dict())
        return PlannedSet(models, run.arm if run.is_reference else None)

    def learns(self, plan: PlannedSet) -> str:
        """See `ExperimentArena`."""
        return f"{plan.models.depends()}"

    def measure(self, plan: PlannedSet, folder: Path) -> dict[str, Any]:
        """See `ExperimentArena`: "accuracy", "loss", and "seconds" of the merge; or "lines"."""
        models, config = plan.models, plan.models.config
        settings = models.depends() | {
            "test_examples": len(models.test),
            "initialization": config.initialization,
            "method": config.method,
            "options": config.options,
            "alone": plan.reference == "single",
            "lines": self._lines and self._lines.points,
        }
        compute = partial(self._measured, plan, folder)
        with may_fail(UnsoundMergeError):
            return Cells(folder / "cells").get_or_compute(settings, compute)

    def _measured(self, plan: PlannedSet, folder: Path) -> dict[str, Any]:
        models, config = plan.models, plan.models.config
        network, training, test = models.network, models.training, models.test
        weights = models.load(folder)
        if plan.reference == "single":
            accuracies = [evaluate(network, each, test)[1] for each in weights]
            return {"accuracy": float(np.mean(accuracies))}
        problem = MergeProblem(
            network.symmetry,
            weights,
            data_holders=[data_holder(network, part) for part in models.parts],
            shared_data_holder=data_holder(network, training),
            affine_maps=applied_maps(network.make(), test.inputs[:2]),
            seed=models.seed,
            base=models.base if config.initialization == "common" else None,
        )
        started = time.perf_counter()
        options = keyword_arguments(config.method, config.options)
        merged = merge(config.method, problem, **options)
        seconds = round(time.perf_counter() - started, 2)
        loss, accuracy = evaluate(network, statistics_update(network, training)(merged.state), test)
        found = {"accuracy": accuracy, "loss": loss, "seconds": seconds}
        if self._lines is None or plan.reference or not _is_middle(problem, merged):
            return found
        return found | {"lines": [_line(models, problem, merged, self._lines.points)]}


def _is_middle(problem: MergeProblem, merged: MergeResult) -> bool:
    """Whether a merge is the average of the aligned models, and so on the line between them."""
    average = problem.mean(merged.permutations)
    return all(
        torch.allclose(average[name], merged.state[name].to(average[name])) for name in average
    )


def _line(
    models: ModelSet, problem: MergeProblem, merged: MergeResult, points: int
) -> Mapping[str, Any]:
    """Returns losses and accuracies on the line between two aligned networks."""
    update, lambdas = statistics_update(models.network, models.training), lambdas_of(points)
    first, second = problem.permuted(merged.permutations)

    def measured(position: float) -> tuple[float, float]:
        state: State = update(interpolate(first, second, position))
        return evaluate(models.network, state, models.test)

    losses, accuracies = zip(*map(measured, lambdas.tolist()), strict=True)
    return {
        "loss": asdict(Barrier.of_losses(lambdas, losses)),
        "accuracy": asdict(Barrier.of_performances(lambdas, accuracies)),
    }


_loaded = lru_cache(maxsize=2)(sources.load)
