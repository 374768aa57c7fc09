"""Networks that learn labelled examples, trained once and stored, and how they are merged."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fleet_tools.baselines.experiments.result_cache import ResultCache
from fleet_tools.baselines.experiments.studies.labelled import Labelled
from fleet_tools.baselines.experiments.studies.networks import Network, network
from fleet_tools.baselines.experiments.studies.training import (
    TrainingSettings,
    evaluate,
    initial_weights,
    train,
)
from fleet_tools.baselines.merging.methods.registry import merge
from fleet_tools.baselines.merging.model_files import read_model, read_notes, write_model
from fleet_tools.baselines.merging.moments.affine_maps import require_measurable
from fleet_tools.baselines.merging.moments.rows import applied_maps
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult
from fleet_tools.baselines.merging.symmetry.table import State

CLOSED_FORMS = ("regmean", "least_squares")
"""Methods that measure second moments of what all layers read."""


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


@dataclass(frozen=True, eq=False)
class StudyData:
    """What networks learn in a study, and how.

    Attributes:
        name: Name of the examples, see `sources.SOURCES`.
        training: Examples for training.
        test: Examples for the test.
        settings: Settings of training.
    """

    name: str
    training: Labelled
    test: Labelled
    settings: TrainingSettings

    def network(self, name: str) -> Network:
        """Returns a network, see `networks.network`, for these examples.

        Raises:
            UnknownNameError: It learns examples of another kind.
        """
        return network(name, self.training.shape)

    def require_measurable(self, name: str) -> None:
        """Raises an error unless `CLOSED_FORMS` can merge a network, see `networks.network`.

        Raises:
            MergeError: The moments of one of its layers are too large.
        """
        module = self.network(name).make()
        require_measurable(applied_maps(module, self.test.inputs[:2]), module.state_dict())

    def facts(self) -> dict[str, Any]:
        """Returns what results depend on, as plain JSON data."""
        return {
            "data": self.name,
            "examples": len(self.training),
            "training": asdict(self.settings),
        }


@dataclass(frozen=True)
class ModelSet:
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
        compute: Callable[[], dict[str, Any]],
    ) -> dict[str, Any]:
        """Returns a stored result, or computes and stores it.

        Args:
            title: Title of the column.
            column: The method.
            settings: Settings of the study on which the result depends, too.
            compute: Computes the result.
        """
        return ResultCache(self.folder).get_or_compute(
            f"{self.name}-{title}-{self.seed}",
            {
                **self._training_settings(),
                "test_examples": len(self.data.test),
                **settings,
                **asdict(column),
            },
            compute,
        )

    def _training_settings(self) -> dict[str, Any]:
        return {"network": self.network.title, **self.data.facts()}


def timed_merge(column: MethodColumn, problem: MergeProblem) -> tuple[MergeResult, float]:
    """Returns the merge, and its wall time in s."""
    started = time.perf_counter()
    merged = merge(column.method, problem, **column.options)
    return merged, round(time.perf_counter() - started, 2)


def mean_accuracy(network: Network, models: Sequence[State], test: Labelled) -> float:
    """Returns the mean accuracy of single models."""
    return float(np.mean([evaluate(network, model, test)[1] for model in models]))
