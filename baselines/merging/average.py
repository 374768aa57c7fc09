"""Weighted averages of models."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from fleet_tools.baselines.merging.errors import FleetError, ModelMismatchError
from fleet_tools.baselines.merging.symmetry.table import State, require_alike


def normalized(weights: Sequence[float] | None, count: int) -> np.ndarray:
    """Weights that sum to 1, shape (count,); equal ones where none are given.

    Raises:
        FleetError: There is not one for each model, one is negative or not finite, or all are 0.
    """
    values = np.ones(count) if weights is None else np.asarray(weights, dtype=float)
    if values.shape != (count,) or not np.isfinite(values).all() or values.min(initial=0.0) < 0:
        raise FleetError(
            f"{count} models have the weights {weights}. Give {count} numbers, none below 0."
        )
    if not values.sum() > 0:
        raise FleetError(f"The weights {weights} sum to {values.sum()}. Give a model some weight.")
    return values / values.sum()


def average(states: Sequence[State], weights: Sequence[float] | None = None) -> dict:
    """The weighted mean of models.

    Counts (integers, such as a BatchNorm's batches) are rounded; masks (booleans) must agree.
    A BatchNorm's statistics are those of no model afterwards: see `batch_norm.recompute`.

    Args:
        states: At least one model; all of one form.
        weights: One for each, of any sum.

    Returns:
        New tensors of the same names, shapes, dtypes and devices. Gradients flow.

    Raises:
        FleetError: No models, or bad weights.
        ModelMismatchError: The models differ in form, or in a mask.
    """
    if not states:
        raise FleetError("There are no models to average. Give at least one.")
    require_alike(states)
    shares = normalized(weights, len(states)).tolist()
    return {name: _mean(name, [state[name] for state in states], shares) for name in states[0]}


def interpolate(one: State, other: State, at: float) -> dict[str, torch.Tensor]:
    """The model (1 - at) one + at other, of the paper's barriers.

    Raises:
        FleetError: `at` is not within 0 and 1.
        ModelMismatchError: The models differ in form.
    """
    if not 0 <= at <= 1:
        raise FleetError(f"A model at {at} is not between two models. Give a number from 0 to 1.")
    return average([one, other], [1 - at, at])


def floating(state: State) -> dict[str, torch.Tensor]:
    """The tensors of a model that can be averaged and have gradients."""
    return {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}


def flat(state: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Its floating-point tensors as one vector, sorted by name, for norms and distances."""
    return torch.cat([tensor.flatten().double() for _, tensor in sorted(floating(state).items())])


def _mean(name: str, tensors: Sequence[torch.Tensor], shares: Sequence[float]) -> torch.Tensor:
    first = tensors[0]
    if first.dtype == torch.bool:
        if not all(torch.equal(first, tensor) for tensor in tensors[1:]):
            raise ModelMismatchError(
                f"{name} is a mask, and differs between models. Merge models of one mask."
            )
        return first.clone()
    if first.is_floating_point() or first.is_complex():
        total = tensors[0] * shares[0]
        for tensor, share in zip(tensors[1:], shares[1:], strict=True):
            total = total + share * tensor.to(total.device)
        return total
    # In float64, which holds counts up to 2**53.
    total = sum(
        share * tensor.double().cpu() for tensor, share in zip(tensors, shares, strict=True)
    )
    return total.round().to(first)
