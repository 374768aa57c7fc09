"""Weights as one vector: what is sent, rounded and summed."""

from collections.abc import Sequence

import numpy as np
import torch

from fleet_tools.baselines.merging.average import floating_tensors
from fleet_tools.baselines.merging.symmetry.table import State


def sizes(state: State) -> list[int]:
    """Returns the number of entries of each floating-point tensor, in the order of the state."""
    return [tensor.numel() for tensor in floating_tensors(state).values()]


def difference(state: State, reference: State) -> np.ndarray:
    """Returns the floating-point tensors of a state less those of a reference.

    Args:
        state: Weights.
        reference: Weights of the same names and shapes.

    Returns:
        Shape (n,), float32, in the order of the reference.
    """
    parts = [
        (state[name].double() - tensor.double()).flatten().numpy()
        for name, tensor in floating_tensors(reference).items()
    ]
    return np.concatenate(parts).astype(np.float32)


def displaced(reference: State, vector: np.ndarray) -> dict[str, torch.Tensor]:
    """Returns a reference with a vector added to its floating-point tensors.

    Args:
        reference: Weights.
        vector: Shape (n,), float64, in the order of the reference.
    """
    weights = dict(reference)
    parts = split(vector, sizes(reference))
    for (name, tensor), part in zip(floating_tensors(reference).items(), parts, strict=True):
        change = torch.from_numpy(np.array(part)).view(tensor.shape)
        weights[name] = (tensor.double() + change).to(tensor)
    return weights


def split(vector: np.ndarray, counts: Sequence[int]) -> list[np.ndarray]:
    """Returns the parts of a vector, one for each tensor."""
    return np.split(vector, np.cumsum(counts)[:-1])
