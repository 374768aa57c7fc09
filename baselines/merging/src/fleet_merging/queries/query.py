"""Queries to data holders and their answers, as typed values; `validity` checks them."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from fleet_merging.errors import MessageError
from fleet_merging.moments.affine_maps import AffineMap
from fleet_merging.moments.gate import RowGate
from fleet_merging.moments.measurement import Moments, Target
from fleet_merging.moments.mixture import StateMixture
from fleet_merging.symmetry.table import State


@dataclass(frozen=True, eq=False)
class LossQuery:
    """A query for the loss of a model, and for the gradient.

    Attributes:
        model: The model.
        seed: Seed of the data holder's draw of a trajectory or batch, at least 0; None requests all
            data.
        gradient: Whether the gradient is requested, too.
    """

    model: State
    seed: int | None
    gradient: bool = True


@dataclass(frozen=True, eq=False)
class LossAnswer:
    """The answer to a `LossQuery`.

    Attributes:
        loss: Loss on the data.
        gradient: Gradient with respect to the model's parameters; empty if it was not requested. A
            missing parameter has the gradient zero.
    """

    loss: float
    gradient: Mapping[str, torch.Tensor]


@dataclass(frozen=True, eq=False)
class MomentQuery:
    """A query for second moments, answered by `Moments` by the name of the map.

    Attributes:
        model: The measured model.
        maps: Names of its affine maps.
        target: Factor of the inputs in products, see `measurement.measure_moments`.
        teacher: The model that gives the targets "inputs" and "outputs"; otherwise None.
        beside: Further models; their inputs follow the model's, one after another.
        gate: Multiplies the inputs of each model, see `measurement.measure_moments`.
    """

    model: State
    maps: tuple[str, ...]
    target: Target = "none"
    teacher: State | None = None
    beside: tuple[State, ...] = ()
    gate: RowGate | None = None

    def size(self, each: AffineMap) -> int:
        """Returns the number of inputs of a map, of all models together and with each 1."""
        own_ones = self.gate is not None
        models = (self.model, *self.beside)
        return 1 + sum(each.matrix(state).shape[1] - 1 + own_ones for state in models)

    def require_possible(self) -> None:
        """Raises a `MessageError` unless the gate fits the models."""
        if (gate := self.gate) is None:
            return
        shape = tuple(gate.means.shape)
        if len(shape) != 2 or gate.factors.shape != (*shape, shape[1]) or not gate.sharpness >= 0:
            raise MessageError(
                f"A message is not a query for moments: its gate has {shape} means, "
                f"{tuple(gate.factors.shape)} factors and the sharpness {gate.sharpness:g}."
            )
        if shape[0] != 1 + len(self.beside) or not 0 <= gate.reader < shape[0]:
            raise MessageError(
                f"A gate for {shape[0]} models came with {1 + len(self.beside)} models and the "
                f"reader {gate.reader}."
            )


MAX_COMPONENTS = 256
"""Largest number of requested Gaussians."""


@dataclass(frozen=True, eq=False)
class MixtureQuery:
    """A query for Gaussians of states, answered by a `StateMixture`.

    Attributes:
        components: Largest number of Gaussians of first pairs of episodes, and of other pairs.
        seed: Seed of the clusters of states, at least 0.
        rank: Number of principal axes that describe states; 0 for their numbers.
        model: The model with the encoders, if states are features; None without encoders.
        consecutive: Whether Gaussians are of pairs of states, for models with a memory.
    """

    components: int
    seed: int
    rank: int = 0
    model: State | None = None
    consecutive: bool = True

    def require_possible(self) -> None:
        """Raises a `MessageError` if numbers are out of range."""
        if not 1 <= self.components <= MAX_COMPONENTS or min(self.seed, self.rank) < 0:
            raise MessageError(
                f"A message requests {self.components} Gaussians along {self.rank} axes with the "
                f"seed {self.seed}; expected: 1 to {MAX_COMPONENTS} Gaussians, and at least 0 axes "
                "and seed."
            )


DataQuery = LossQuery | MomentQuery | MixtureQuery
DataAnswer = LossAnswer | dict[str, Moments] | StateMixture


def in_single_precision(moments: Moments) -> Moments:
    """Returns moments after transfer: the upper triangle of the inputs', in float32."""
    upper = torch.triu(moments.inputs.float().double())
    inputs = upper + torch.triu(upper, 1).transpose(-2, -1)
    return Moments(inputs, moments.targets.float().double())
