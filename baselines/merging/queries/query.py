"""What data holders are asked, and what they answer: typed values, checked once where they arrive.

An answer with any other name, shape or type than was requested is refused, so that no observation
or action is sent by mistake. (Gradients and moments still carry information about the data, and
moments of a few rows determine the rows: this is no encryption.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.moments.affine_maps import AffineMap
from fleet_tools.baselines.merging.moments.gate import RowGate
from fleet_tools.baselines.merging.moments.measurement import Moments, Target
from fleet_tools.baselines.merging.moments.mixture import StateMixture
from fleet_tools.baselines.merging.symmetry.table import State


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
    """A query for second moments, whose answer has `Moments` by the name of the map.

    Attributes:
        model: The model whose inputs are measured.
        maps: Names of its affine maps.
        target: What the inputs are multiplied with, see `measurement.measure_moments`.
        teacher: The model that gives the targets "inputs" and "outputs"; otherwise None.
        beside: Further models, whose inputs are put beside the model's, one after another.
        gate: Gate that multiplies the inputs of each model, see `measurement.measure_moments`.
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
        """Checks that the gate fits the models.

        Raises:
            MessageError: It does not.
        """
        if (gate := self.gate) is None:
            return
        shape = tuple(gate.means.shape)
        if len(shape) != 2 or gate.factors.shape != (*shape, shape[1]) or not gate.sharpness >= 0:
            raise MessageError(
                f"A message is no query for moments: its gate has {shape} means, "
                f"{tuple(gate.factors.shape)} factors and the sharpness {gate.sharpness:g}."
            )
        if shape[0] != 1 + len(self.beside):
            raise MessageError(f"A gate for {shape[0]} models is sent with {1 + len(self.beside)}.")


MAX_COMPONENTS = 256
"""Largest number of Gaussians that is asked for."""

_LONGEST = 10**4
"""Mean number of states of episodes above which a mixture is not one of any data."""


@dataclass(frozen=True, eq=False)
class MixtureQuery:
    """A query for Gaussians of consecutive states, whose answer is a `StateMixture`.

    Attributes:
        components: Largest number of Gaussians of pairs with which episodes begin, and of others.
        seed: Seed of the clusters of states, at least 0.
        rank: Number of principal axes along which states are described; 0 for their numbers.
        model: The model whose encoders' features states are; None for models without encoders.
    """

    components: int
    seed: int
    rank: int = 0
    model: State | None = None

    def require_possible(self) -> None:
        """Checks the numbers.

        Raises:
            MessageError: No mixture has them.
        """
        if not 1 <= self.components <= MAX_COMPONENTS or min(self.seed, self.rank) < 0:
            raise MessageError(
                f"A message asks for {self.components} Gaussians along {self.rank} axes with the "
                f"seed {self.seed}; expected: 1 to {MAX_COMPONENTS}, and at least 0."
            )


DataQuery = LossQuery | MomentQuery | MixtureQuery
DataAnswer = LossAnswer | dict[str, Moments] | StateMixture


def checked_loss(answer: object, query: LossQuery) -> LossAnswer:
    """Returns an answer to a query for a loss, with the gradient in the order of the model.

    Raises:
        MessageError: It is no such answer, holds what was not requested, or is not finite.
    """
    if not isinstance(answer, LossAnswer):
        raise MessageError(f"A data holder was asked for a loss, and answers {_kind(answer)}.")
    for name, tensor in answer.gradient.items():
        parameter = query.model.get(name)
        if (
            parameter is None
            or not query.gradient
            or not parameter.is_floating_point()
            or tensor.shape != parameter.shape
            or tensor.dtype != parameter.dtype
        ):
            raise MessageError(
                f"An answer holds the gradient {name!r} of the shape {tuple(tensor.shape)}, which "
                "was not requested. A data holder answers with a loss and with gradients of the "
                "parameters of the query, in their shapes and dtypes."
            )
    numbers = (torch.tensor(answer.loss), *answer.gradient.values())
    if not all(bool(torch.isfinite(value).all()) for value in numbers):
        raise MessageError(
            f"A data holder answers with the loss {answer.loss} or gradients that are not finite. "
            "Check its data and its loss; a lower rate may help."
        )
    gradient = {
        name: answer.gradient[name].to(parameter.device)
        for name, parameter in query.model.items()
        if name in answer.gradient
    }
    return LossAnswer(answer.loss, gradient)


def checked_moments(
    answer: object, query: MomentQuery, maps: Sequence[AffineMap]
) -> dict[str, Moments]:
    """Returns an answer to a query for moments, in the order of the query.

    Args:
        answer: The answer.
        query: The query.
        maps: The affine maps of the model.

    Raises:
        MessageError: It is no such answer, holds what was not requested, or is not finite.
    """
    if not isinstance(answer, dict):
        raise MessageError(f"A data holder was asked for moments, and answers {_kind(answer)}.")
    known = {each.name: each for each in maps}
    if unasked := sorted(set(answer) - set(query.maps)):
        raise MessageError(f"An answer holds {', '.join(unasked)}, which was not requested.")
    for name in query.maps:
        groups, _, outputs = known[name].matrix(query.model).shape
        size = query.size(known[name])
        columns = {"none": 0, "inputs": size}.get(query.target, outputs)
        found = answer.get(name)
        if not isinstance(found, Moments):
            raise MessageError(f"In an answer, the moments of {name!r} are missing.")
        for what, tensor, width in (
            ("inputs", found.inputs, size),
            ("targets", found.targets, columns),
        ):
            shape = (groups, size, width)
            if tuple(tensor.shape) != shape or tensor.dtype != torch.float64:
                raise MessageError(
                    f"In an answer, the {what} of {name!r} are {tensor.dtype} "
                    f"{tuple(tensor.shape)}, expected: {shape}. Other moments were not requested."
                )
            if not bool(torch.isfinite(tensor).all()):
                raise MessageError(f"In an answer, {what} of {name!r} hold NaN or infinity.")
    return {name: answer[name] for name in query.maps}


def checked_mixture(answer: object, query: MixtureQuery) -> StateMixture:
    """Returns an answer to a query for a mixture.

    Raises:
        MessageError: It is no such answer, has more Gaussians, or is not one of any data.
    """
    if not isinstance(answer, StateMixture):
        raise MessageError(f"A data holder was asked for a mixture, and answers {_kind(answer)}.")
    weights, means, covariances = answer.weights, answer.means, answer.covariances
    count, size = (*means.shape, 0, 0)[:2]
    axes = torch.ones(1, size // 2) if answer.axes is None else answer.axes
    shapes = [tuple(each.shape) for each in (weights, means, covariances)]
    if (
        shapes != [(count,), (count, size), (count, size, size)]
        or not 1 <= answer.starts <= min(count, query.components)
        or count - answer.starts > query.components
        or not 2 <= size == 2 * (size // 2)
        or axes.dim() != 2
        or axes.shape[1] != size // 2
        or (answer.axes is not None and axes.shape[1] != query.rank)
        or any(each.dtype != torch.float32 for each in (weights, means, covariances, axes))
    ):
        raise MessageError(
            f"An answer holds {answer.starts} Gaussians of first states and others, of the shapes "
            f"{shapes}, with axes {tuple(axes.shape)}; expected: (K,), (K, 2 n), (K, 2 n, 2 n) and "
            f"perhaps (size, {query.rank}) in float32, of 1 to {query.components} and at most as "
            "many."
        )
    finite = all(bool(torch.isfinite(each).all()) for each in (weights, means, covariances, axes))
    if (
        not finite
        or not bool((weights > 0).all())
        or abs(float(weights.sum()) - 1) > 1e-3
        or float(weights[: answer.starts].sum()) * _LONGEST < 1
        or bool((covariances.diagonal(dim1=1, dim2=2) < 0).any())
    ):
        raise MessageError(
            "In an answer, Gaussians hold NaN, infinity, negative variances, or weights that do "
            "not sum to 1 or are of endless episodes: they are those of no data."
        )
    return answer


def in_single_precision(moments: Moments) -> Moments:
    """Returns moments as they arrive: the upper triangle of the inputs', in float32."""
    upper = torch.triu(moments.inputs.float().double())
    inputs = upper + torch.triu(upper, 1).transpose(-2, -1)
    return Moments(inputs, moments.targets.float().double())


def _kind(answer: object) -> str:
    return f"a {type(answer).__name__}"
