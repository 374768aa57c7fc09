"""Selects the units that explain later layers' inputs best: forward selection on second moments.

Units are chosen one after another (Chen, Billings and Luo 1989), without a solution for each
candidate: the part that a chosen unit explains is removed from the moments of all others.
"""

from collections.abc import Sequence

import numpy as np
import torch

_DAMPING = 1e-3
"""Fraction of a unit's variance added to its unexplained variance, in the forward selection."""

Candidates = tuple[np.ndarray, np.ndarray]
"""Covariances of units with one another, (n, n), and with later layers' inputs, (n, k)."""


def candidates_of(
    second: torch.Tensor, parts: Sequence[list[int]], wanted: torch.Tensor
) -> list[Candidates]:
    """Returns the candidates of one map: a set for each time that it reads the units.

    Args:
        second: Second moments of its inputs.
        parts: Rows of the units, for each time that it reads them.
        wanted: Its matrix.
    """
    found, variance = [], 0.0
    for rows in parts:
        mean = second[rows, -1]
        covariance = second[rows][:, rows] - mean.outer(mean)
        products = covariance @ wanted[rows]
        found.append((covariance, products))
        variance += float((wanted[rows] * products).sum())
    scale = max(variance, 1e-24) ** 0.5  # so that all maps above have equal weight
    return [(covariance.numpy(), (each / scale).numpy()) for covariance, each in found]


def greedy(candidates: Sequence[Candidates], count: int) -> list[int]:
    """Returns a number of units, each the best to explain the rest of those before.

    A unit explains sum_k C_jk^2 / G_jj of the inputs. The covariances G of units, and C with the
    inputs, are without the parts that the units before explain.
    """
    left = [(G.copy(), C.copy(), _DAMPING * np.diagonal(G) + 1e-12) for G, C in candidates]
    order: list[int] = []
    for _ in range(count):
        gains = [(C**2).sum(1) / (np.diagonal(G) + damping) for G, C, damping in left]
        gain = np.sum(gains, axis=0)
        gain[order] = -1.0
        best = int(np.argmax(gain))
        order.append(best)
        for G, C, damping in left:
            explained = G[:, best] / (G[best, best] + damping[best])
            C -= np.outer(explained, C[best])
            G -= np.outer(explained, G[best])
    return order
