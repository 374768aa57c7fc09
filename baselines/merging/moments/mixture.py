"""Gaussians of consecutive states, which a data holder measures, and from which states are drawn.

States are clustered, and each cluster has the mean and covariance of its states together with those
that followed them. So a mixture says where states lie, and how they change: a Gaussian of a pair
gives, where its first half is known, a Gaussian of the second (a switching linear-Gaussian model,
as in Ghahramani and Hinton 2000, whose component is the likeliest one in each state).
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fleet_tools.baselines.merging.errors import MergeError

LIMIT = 10.0
"""States are clipped to within this range before they are measured: a blow's force can be thousands
of standard deviations large, and no Gaussian of it would be like the others."""

_SPREAD = 0.01
"""Variance that is added where the density of a state is asked."""
_RIDGE = 0.1
"""Variance that is added to a state's where the next one is predicted from it: in directions in
which states hardly differ, no change follows from them."""
_REACH = 3.0
"""Standard deviations of the whole mixture within which drawn sequences stay."""


@dataclass(frozen=True, eq=False)
class StateMixture:
    """A mixture of K Gaussians of pairs of a state of n numbers and the next one.

    The first Gaussian is of the pairs with which episodes begin.

    Attributes:
        weights: Fraction of the pairs that each Gaussian has, (K,) float32.
        means: Means of the pairs, (K, 2 n) float32.
        covariances: Their covariances, (K, 2 n, 2 n) float32.
    """

    weights: torch.Tensor
    means: torch.Tensor
    covariances: torch.Tensor

    @property
    def size(self) -> int:
        """Number of numbers of a state."""
        return self.means.shape[1] // 2

    @property
    def steps(self) -> int:
        """Mean number of states of an episode, at least 2."""
        return 1 + round(1 / float(self.weights[0]))

    def states(self, count: int, generator: torch.Generator) -> torch.Tensor:
        """Returns states that are drawn independently, (count, n) float32."""
        chosen = torch.multinomial(self.weights, count, replacement=True, generator=generator)
        noise = torch.randn(count, self.size, generator=generator).double()
        drawn = torch.zeros(count, self.size, dtype=torch.float64)
        for index in range(len(self.weights)):
            rows = chosen == index
            mean, covariance = self._of_states(index)
            drawn[rows] = mean + noise[rows] @ _root(covariance).T
        return drawn.float()

    def sequences(self, count: int, steps: int, generator: torch.Generator) -> torch.Tensor:
        """Returns sequences of states, each from the beginning of an episode on.

        Args:
            count: Number of sequences.
            steps: Number of states of each.
            generator: Draws.

        Returns:
            (count, steps, n) float32.
        """
        mean, covariance = self._of_states(0)
        noise = torch.randn(count, self.size, generator=generator).double()
        states = [mean + noise @ _root(covariance).T]
        low, high = self._range()
        changes = [self._change(index) for index in range(len(self.weights))]
        for step in range(1, steps):
            now = states[-1]
            noise = torch.randn(count, self.size, generator=generator).double()
            chosen = torch.zeros(count, dtype=torch.long) if step == 1 else self._likeliest(now)
            after = torch.zeros_like(now)
            for index, (offset, matrix, root) in enumerate(changes):
                rows = chosen == index
                after[rows] = now[rows] @ matrix.T + offset + noise[rows] @ root.T
            states.append(torch.minimum(torch.maximum(after, low), high))
        return torch.stack(states, 1).float()

    def _of_states(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        n = self.size
        return self.means[index, :n].double(), self.covariances[index, :n, :n].double()

    def _range(self) -> tuple[torch.Tensor, torch.Tensor]:
        n, weights = self.size, self.weights.double()[:, None] / self.weights.double().sum()
        means = self.means[:, :n].double()
        mean = (weights * means).sum(0)
        own = self.covariances[:, :n, :n].double().diagonal(dim1=1, dim2=2)
        deviation = (weights * (own + (means - mean).square())).sum(0).clamp(min=0).sqrt()
        return mean - _REACH * deviation, mean + _REACH * deviation

    def _likeliest(self, states: torch.Tensor) -> torch.Tensor:
        """Returns the Gaussian that most probably has each state, (n,)."""
        scores = []
        for index, weight in enumerate(self.weights.double()):
            mean, covariance = self._of_states(index)
            values, vectors = torch.linalg.eigh(covariance)
            values = values.clamp(min=0) + _SPREAD
            distances = ((states - mean) @ vectors).square() / values
            scores.append(weight.log() - (distances.sum(-1) + values.log().sum()) / 2)
        return torch.stack(scores).argmax(0)

    def _change(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns b, A and F of the next state A x + b + F noise of a Gaussian."""
        n, covariance = self.size, self.covariances[index].double()
        now, both = covariance[:n, :n], covariance[:n, n:]
        change = both - now
        gain = torch.linalg.solve(now + _RIDGE * torch.eye(n, dtype=now.dtype), change)
        matrix = torch.eye(n, dtype=now.dtype) + gain.T
        means = self.means[index].double()
        # The covariance of what is left, for whatever matrix, the ridge included.
        left = covariance[n:, n:] - matrix @ both - (matrix @ both).T + matrix @ now @ matrix.T
        return means[n:] - matrix @ means[:n], matrix, _root(left)


def measure_mixture(episodes: Sequence[torch.Tensor], count: int, seed: int) -> StateMixture:
    """Returns the mixture of the states of episodes.

    Args:
        episodes: States of each episode, (steps, n).
        count: Number of Gaussians, at least 2; clusters that remain empty have none.
        seed: Seed of the clusters.

    Raises:
        MergeError: No episode has two states, or a number is not finite.
    """
    from scipy.cluster.vq import kmeans2

    clipped = [each.double().clamp(-LIMIT, LIMIT) for each in episodes if len(each) > 1]
    if not clipped or not all(bool(torch.isfinite(each).all()) for each in clipped):
        raise MergeError(
            "A mixture of states is measured on episodes of at least two states, of finite "
            f"numbers; there are {len(clipped)} of at least two. Give the states of each episode."
        )
    pairs = torch.cat([torch.cat([each[:-1], each[1:]], 1) for each in clipped])
    starts = np.cumsum([0, *(len(each) - 1 for each in clipped[:-1])])
    cluster = np.zeros(len(pairs), np.int64)
    later = np.setdiff1d(np.arange(len(pairs)), starts)
    if len(later):
        now = pairs[later, : pairs.shape[1] // 2].numpy()
        drawn = np.random.default_rng(seed).permutation(len(now))[: count - 1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of empty clusters
            _, found = kmeans2(now, now[drawn], minit="matrix")
        cluster[later] = 1 + found
    parts = [pairs[cluster == index] for index in np.unique(cluster)]
    return StateMixture(
        torch.tensor([len(part) / len(pairs) for part in parts]),
        torch.stack([part.mean(0) for part in parts]).float(),
        torch.stack([_even(torch.cov(part.T, correction=0)) for part in parts]).float(),
    )


def _root(covariance: torch.Tensor) -> torch.Tensor:
    """Returns a matrix F with F F^T next to a covariance; rounding may have spoilt it."""
    values, vectors = torch.linalg.eigh(_even(covariance))
    return vectors * values.clamp(min=0).sqrt()


def _even(matrix: torch.Tensor) -> torch.Tensor:
    """Returns a symmetric matrix, of which one triangle is sent, without what rounding did."""
    return (matrix + matrix.T) / 2
