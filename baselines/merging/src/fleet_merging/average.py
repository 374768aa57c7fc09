"""Weighted sums and averages of models."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from fleet_merging.buffers import EXTRA_STATE
from fleet_merging.errors import MergeError, ModelMismatchError
from fleet_merging.symmetry.table import State, require_alike

AveragingWeights = Sequence[float] | np.ndarray
"""A non-negative number for each model; they may have any positive sum."""


def normalize(averaging_weights: AveragingWeights | None, count: int) -> np.ndarray:
    """Returns averaging weights that sum to 1, shape (count,); equal ones if None are given.

    Raises a `MergeError` if their number is not `count`, one is negative or infinite, or all are 0.
    """
    given = averaging_weights
    values = np.ones(count) if given is None else np.asarray(given, dtype=float)
    if values.shape != (count,) or not np.isfinite(values).all() or values.min(initial=0.0) < 0:
        raise MergeError(
            f"{count} models have the averaging weights {given}. Give {count} numbers, none "
            "below 0."
        )
    if not values.sum() > 0:
        raise MergeError(
            f"The averaging weights {given} sum to {values.sum()}. Give at least one positive one."
        )
    return values / values.sum()


@dataclass(frozen=True)
class WeightedSum:
    """A sum of weighted models in float64, with cheap additions.

    A negative weight removes a model. The rest is exact up to rounding of the sum. So the average
    of the others is accurate unless the removed model had nearly all the weight.

    Attributes:
        weight: Sum of the weights.
        terms: Sums of the tensors by name, in float64 or complex128; tensors that must agree are
            unchanged.
        agreeing: Names of the tensors that must agree; None to find them in the first model.
    """

    weight: float = 0.0
    terms: Mapping[str, torch.Tensor] = field(default_factory=dict)
    agreeing: frozenset[str] | None = None

    def plus(self, state: State, weight: float) -> "WeightedSum":
        """Returns the sum with another model of the same form; gradients flow.

        Raises a `ModelMismatchError` if tensors that must agree differ, see `average`.
        """
        terms: dict[str, torch.Tensor] = {}
        agreeing = agreeing_tensors(state) if self.agreeing is None else self.agreeing
        for name, tensor in state.items():
            total = self.terms[name] if self.terms else None
            tensor = tensor if total is None else tensor.to(total.device)
            if name not in agreeing:
                # Float64, which holds integers up to 2**53, or complex128.
                exact = tensor.to(torch.promote_types(tensor.dtype, torch.float64))
                terms[name] = weight * exact if total is None else total.add(exact, alpha=weight)
            elif total is None or torch.equal(total, tensor):
                terms[name] = tensor if total is None else total
            else:
                kind = "is a mask" if tensor.dtype == torch.bool else f"holds {tensor.dtype}"
                raise ModelMismatchError(
                    f"{name} {kind}, which cannot be averaged, and differs between models. Merge "
                    "models with equal values."
                )
        return WeightedSum(self.weight + weight, terms, agreeing)

    def mean(self, form: State) -> dict[str, torch.Tensor]:
        """Returns the average: new tensors of the names and dtypes of one of the models.

        Counts, such as a BatchNorm's of batches, are rounded.
        """
        mean: dict[str, torch.Tensor] = {}
        for name, each in form.items():
            if name in (self.agreeing or ()):
                mean[name] = self.terms[name].to(each.device, copy=True)
                continue
            value = self.terms[name] / self.weight
            exact = each.is_floating_point() or each.is_complex()
            mean[name] = (value if exact else value.round()).to(each)
        return mean


def weighted_sum(states: Iterable[State], weights: Iterable[float]) -> WeightedSum:
    """Returns the sum of an iterable of models, with only one in memory at a time."""
    total = WeightedSum()
    for state, weight in zip(states, weights, strict=True):
        total = total.plus(state, weight)
    return total


def average(
    states: Sequence[State], averaging_weights: AveragingWeights | None = None
) -> dict[str, torch.Tensor]:
    """Returns the weighted mean of models, summed in float64.

    Counts (single integers, such as a BatchNorm's of batches) are rounded. Arrays of integers,
    booleans and a module's extra state must agree: they are indices, codes and masks.
    The averaged statistics of a BatchNorm fit no model: see `modules.recompute`.

    Args:
        states: State dicts of at least one model, all of one form.
        averaging_weights: One for each model; equal ones if None.

    Returns:
        New tensors of the same names, shapes, dtypes and devices. Gradients flow.

    Raises:
        MergeError: There are no models, or the averaging weights are invalid.
        ModelMismatchError: The models differ in form, or in tensors that must agree.
    """
    if not states:
        raise MergeError("There are no models to average. Give at least one.")
    require_alike(states)
    weights = normalize(averaging_weights, len(states)).tolist()
    return weighted_sum(states, weights).mean(states[0])


def interpolate(one: State, other: State, coefficient: float) -> dict[str, torch.Tensor]:
    """Returns the model (1 - coefficient) one + coefficient other, as in the paper's barriers.

    Raises a `MergeError` if the coefficient is not within 0 and 1.
    """
    if not 0 <= coefficient <= 1:
        raise MergeError(
            f"The coefficient {coefficient} is not between the two models. Give a number from 0 to "
            "1."
        )
    return average([one, other], [1 - coefficient, coefficient])


def floating_tensors(state: State) -> dict[str, torch.Tensor]:
    """Returns the floating-point tensors of a model, which have gradients."""
    return {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}


def flatten(state: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the floating-point tensors of a model as one float64 vector, sorted by name."""
    tensors = sorted(floating_tensors(state).items())
    return torch.cat([tensor.flatten().double() for _, tensor in tensors])


def agreeing_tensors(state: State) -> frozenset[str]:
    """Returns the names of indices, codes, masks and extra state, which have no average."""
    return frozenset(
        name
        for name, tensor in state.items()
        if (
            name.rpartition(".")[2] == EXTRA_STATE
            if tensor.is_floating_point() or tensor.is_complex()
            else tensor.dtype == torch.bool or tensor.dim() > 0
        )
    )
