"""What a merging method is given, and what it returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from fleet_tools.baselines.merging.average import average, normalized
from fleet_tools.baselines.merging.errors import FleetError
from fleet_tools.baselines.merging.queries.data_holder import Robot, Traffic
from fleet_tools.baselines.merging.symmetry.group import Permutation, PermutationGroup
from fleet_tools.baselines.merging.symmetry.table import State, Symmetry, require_alike


@dataclass(frozen=True)
class Fleet:
    """Models of one form, and what is known of them beside their weights.

    Args:
        symmetry: The table of all the models.
        models: State dicts, at least one; they stay as they are. Whatever the order of their names
            (files have it at random), it is kept as the table's, for sums round in some order.
        weights: Of each in averages; equal ones if None. They may sum to anything.
        robots: Whom to ask about each model's own data, for `fleet_merge`.
        shared: Whom to ask about a data set common to all, for losses of `sinkhorn_rebasin`.
        activations: Of each model's units to the same inputs, by free name, for `git_rebasin`'s
            activation matching (see `activations.record`).
        seed: Of all that is drawn.

    Raises:
        FleetError: There are no models, or not one weight, robot or set of activations for each.
        ModelMismatchError: The models are not of one form.
        UncoveredParameterError, AxisSizeError: The table does not fit them.
    """

    symmetry: Symmetry
    models: Sequence[State]
    weights: Sequence[float] | None = None
    robots: Sequence[Robot] = ()
    shared: Robot | None = None
    activations: Sequence[Mapping[str, torch.Tensor]] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.models:
            raise FleetError("A fleet has no models. Give at least one state dict.")
        require_alike(self.models)
        self.symmetry.group(self.models[0])
        in_order = tuple({name: each[name] for name in self.symmetry.axes} for each in self.models)
        object.__setattr__(self, "models", in_order)
        normalized(self.weights, len(self.models))
        for what in ("robots", "activations"):
            given = getattr(self, what)
            if given and len(given) != len(self.models):
                raise FleetError(
                    f"A fleet of {len(self.models)} models has {len(given)} {what}. Give one for "
                    "each model, in the same order, or none."
                )

    @property
    def group(self) -> PermutationGroup:
        """The free permutations of the models."""
        return self.symmetry.group(self.models[0])

    @property
    def shares(self) -> np.ndarray:
        """The weights, summing to 1; shape (models,)."""
        return normalized(self.weights, len(self.models))

    def permuted(self, permutations: Sequence[Permutation]) -> list[dict[str, torch.Tensor]]:
        """Every model under its own permutation."""
        return [
            self.symmetry.apply(permutation, model)
            for permutation, model in zip(permutations, self.models, strict=True)
        ]

    def mean(self, permutations: Sequence[Permutation]) -> dict[str, torch.Tensor]:
        """The weighted average of the permuted models."""
        return average(self.permuted(permutations), self.weights)


@dataclass(frozen=True)
class Merged:
    """What a method makes of a fleet.

    Args:
        state: The merged model.
        permutations: Each model's, under which it was averaged.
        traffic: What crossed to and from robots meanwhile.
    """

    state: dict[str, torch.Tensor]
    permutations: tuple[Permutation, ...]
    traffic: Traffic = field(default_factory=Traffic)
