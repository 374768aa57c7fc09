"""Weighted averages of models."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from fleet_tools.baselines.merging.errors import MergeError, ModelMismatchError
from fleet_tools.baselines.merging.symmetry.table import State, require_alike

AveragingWeights = Sequence[float] | np.ndarray
"""A non-negative number for each model; they may have any positive sum."""


def normalize(averaging_weights: AveragingWeights | None, count: int) -> np.ndarray:
    """Returns averaging weights that sum to 1, shape (count,); equal ones if None are given.

    Raises:
        MergeError: Their number is not `count`, one is negative or not finite, or all are 0.
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


def average(
    states: Sequence[State], averaging_weights: AveragingWeights | None = None
) -> dict[str, torch.Tensor]:
    """Returns the weighted mean of models.

    Integers (such as a BatchNorm's count of batches) are rounded; booleans (masks) must agree.
    The averaged statistics of a BatchNorm fit no model: see `batch_norm.recompute`.

    Args:
        states: State dicts of at least one model, all of one form.
        averaging_weights: One for each model; equal ones if None.

    Returns:
        New tensors of the same names, shapes, dtypes and devices. Gradients flow.

    Raises:
        MergeError: There are no models, or the averaging weights are invalid.
        ModelMismatchError: The models differ in form, or in a mask.
    """
    if not states:
        raise MergeError("There are no models to average. Give at least one.")
    require_alike(states)
    normalized = normalize(averaging_weights, len(states)).tolist()
    return {name: _mean(name, [state[name] for state in states], normalized) for name in states[0]}


def interpolate(one: State, other: State, coefficient: float) -> dict[str, torch.Tensor]:
    """Returns the model (1 - coefficient) one + coefficient other, as in the paper's barriers.

    Raises:
        MergeError: The coefficient is not within 0 and 1.
        ModelMismatchError: The models differ in form.
    """
    if not 0 <= coefficient <= 1:
        raise MergeError(
            f"The coefficient {coefficient} gives a model that is not between the two. Give a "
            "number from 0 to 1."
        )
    return average([one, other], [1 - coefficient, coefficient])


def floating_tensors(state: State) -> dict[str, torch.Tensor]:
    """Returns the floating-point tensors of a model, which have gradients."""
    return {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}


def flatten(state: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the floating-point tensors of a model as one float64 vector, sorted by name."""
    tensors = sorted(floating_tensors(state).items())
    return torch.cat([tensor.flatten().double() for _, tensor in tensors])


def _mean(
    name: str, tensors: Sequence[torch.Tensor], averaging_weights: Sequence[float]
) -> torch.Tensor:
    first = tensors[0]
    if first.dtype == torch.bool:
        if not all(torch.equal(first, tensor) for tensor in tensors[1:]):
            raise ModelMismatchError(
                f"{name} is a mask, and differs between models. Merge models of one mask."
            )
        return first.clone()
    if first.is_floating_point() or first.is_complex():
        total = tensors[0] * averaging_weights[0]
        for tensor, weight in zip(tensors[1:], averaging_weights[1:], strict=True):
            total = total + weight * tensor.to(total.device)
        return total
    # In float64, which holds counts up to 2**53.
    terms = (
        weight * tensor.double().cpu()
        for tensor, weight in zip(tensors, averaging_weights, strict=True)
    )
    return sum(terms, start=torch.zeros(())).round().to(first)
