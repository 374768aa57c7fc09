"""Gaussians of states: a data holder measures them, and states are drawn from them.

States are clustered. Each cluster has the mean and covariance of its states, which suffice for
models without a memory, or of pairs of a state and the next one. Pairs also describe how states
change: conditioned on a state, the Gaussian of pairs is a Gaussian of the next state. This is a
switching linear model with Gaussian noise (Ghahramani and Hinton 2000), which takes the likeliest
Gaussian of each state.
States of many numbers, such as an encoder's features, are described along their principal axes.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fleet_merging.errors import MergeError

LIMIT = 10.0
"""States are clipped to this range before they are measured. The force of a blow can be thousands
of standard deviations large, and would distort its Gaussian."""

LEAST_EPISODES = 5
"""Smallest number of episodes of each Gaussian. One of fewer would disclose their states, one of a
single episode exactly."""

_SPREAD = 0.01
"""Variance added for densities of states."""
_RIDGE = 0.1
"""Variance added to a state's in predictions of the next one, relative to the mean over its
numbers. In directions in which states hardly differ, they then predict no change."""
_LEAST_SPREAD = 0.1
"""Smallest standard deviation of a number in the choice of principal axes, relative to the mean of
all numbers'."""
_REACH = 3.0
"""Limit of drawn sequences: standard deviations from the nearest Gaussian."""


@dataclass(frozen=True, eq=False)
class StateMixture:
    """A mixture of K Gaussians of m numbers: n coordinates of a state, or of it and the next one.

    Attributes:
        starts: Number of Gaussians of the first states of episodes; they come first.
        weights: Fraction of the states in each Gaussian, (K,) float32. Last states of episodes do
            not count.
        means: Means, (K, m) float32.
        covariances: Covariances, (K, m, m) float32.
        axes: The state of coordinates c is axes @ c, (size, n) float32; None if it is c.
        consecutive: Whether Gaussians are of pairs, m = 2 n; else m = n.
    """

    starts: int
    weights: torch.Tensor
    means: torch.Tensor
    covariances: torch.Tensor
    axes: torch.Tensor | None = None
    consecutive: bool = True

    @property
    def size(self) -> int:
        """Number of numbers of a state."""
        return self.coordinates if self.axes is None else len(self.axes)

    @property
    def coordinates(self) -> int:
        """Number of coordinates of a state, n."""
        return self.means.shape[1] // (1 + self.consecutive)

    @property
    def steps(self) -> int:
        """Mean number of states of an episode, at least 2."""
        return 1 + round(1 / float(self.weights[: self.starts].sum()))

    def states(self, count: int, generator: torch.Generator) -> torch.Tensor:
        """Returns independently drawn states, (count, size) float32."""
        return self._whole(self._states_of(self.weights, count, generator)[0])

    def sequences(self, count: int, steps: int, generator: torch.Generator) -> torch.Tensor:
        """Returns sequences from the beginning of episodes, (count, steps, size) float32.

        They need Gaussians of pairs.
        """
        first, chosen = self._states_of(self.weights[: self.starts], count, generator)
        states, (low, high), ellipsoids = [first], self._range(), self._ellipsoids()
        changes = [self._change(index) for index in range(len(self.weights))]
        for _ in range(1, steps):
            now = states[-1]
            noise = torch.randn(count, self.coordinates, generator=generator).double()
            after = torch.zeros_like(now)
            for index, (offset, matrix, root) in enumerate(changes):
                rows = chosen == index
                after[rows] = now[rows] @ matrix.T + offset + noise[rows] @ root.T
            states.append(torch.minimum(torch.maximum(after, low), high))
            chosen = self._likeliest(states[-1], ellipsoids)
        return self._whole(torch.stack(states, 1))

    def _whole(self, coordinates: torch.Tensor) -> torch.Tensor:
        """Returns states of some coordinates, (..., n) -> (..., size) float32."""
        return coordinates.float() if self.axes is None else coordinates.float() @ self.axes.T

    def _states_of(
        self, weights: torch.Tensor, count: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns coordinates of first states of Gaussians, (count, n), and their Gaussians."""
        chosen = torch.multinomial(weights, count, replacement=True, generator=generator)
        noise = torch.randn(count, self.coordinates, generator=generator).double()
        drawn = torch.zeros(count, self.coordinates, dtype=torch.float64)
        for index in range(len(weights)):
            rows = chosen == index
            mean, covariance = self._of_states(index)
            drawn[rows] = mean + noise[rows] @ _root(covariance).T
        return drawn, chosen

    def _of_states(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        n = self.coordinates
        return self.means[index, :n].double(), self.covariances[index, :n, :n].double()

    def _range(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the least and the largest numbers of states within reach of any Gaussian."""
        n = self.coordinates
        means = self.means[:, :n].double()
        variances = self.covariances.diagonal(dim1=1, dim2=2)[:, :n].double()
        reach = _REACH * variances.clamp(min=0).sqrt()
        return (means - reach).amin(0), (means + reach).amax(0)

    def _ellipsoids(self) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Returns the mean of each Gaussian's states, and variances and directions of its axes."""
        found = []
        for index in range(len(self.weights)):
            mean, covariance = self._of_states(index)
            values, vectors = torch.linalg.eigh(covariance)
            found.append((mean, values.clamp(min=0) + _SPREAD, vectors))
        return found

    def _likeliest(
        self,
        states: torch.Tensor,
        ellipsoids: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor]],
    ) -> torch.Tensor:
        """Returns the most probable Gaussian of each state, (count,)."""
        scores, weights = [], self.weights.double()
        for weight, (mean, values, vectors) in zip(weights, ellipsoids, strict=True):
            distances = ((states - mean) @ vectors).square() / values
            scores.append(weight.log() - (distances.sum(-1) + values.log().sum()) / 2)
        return torch.stack(scores).argmax(0)

    def _change(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns b, A and F of the next state A x + b + F noise of a Gaussian."""
        n, covariance = self.coordinates, self.covariances[index].double()
        now, both = covariance[:n, :n], covariance[:n, n:]
        change = both - now
        ridge = _RIDGE * float(now.diagonal().mean()) + 1e-9
        gain = torch.linalg.solve(now + ridge * torch.eye(n, dtype=now.dtype), change)
        matrix = torch.eye(n, dtype=now.dtype) + gain.T
        means = self.means[index].double()
        # The residual covariance, for any matrix, also with the ridge.
        left = covariance[n:, n:] - matrix @ both - (matrix @ both).T + matrix @ now @ matrix.T
        return means[n:] - matrix @ means[:n], matrix, _root(left)


def measure_mixture(
    episodes: Sequence[torch.Tensor],
    count: int,
    seed: int,
    rank: int = 0,
    *,
    consecutive: bool = True,
) -> StateMixture:
    """Returns the mixture of the states of episodes; each Gaussian has `LEAST_EPISODES`.

    The episodes of a smaller cluster join the nearest others. If fewer episodes continue after
    their first pair of states, no Gaussian describes later states.

    Args:
        episodes: States of each episode, (steps, size).
        count: Largest number of Gaussians of first pairs of episodes, and of other pairs.
        seed: Seed of the clusters.
        rank: Number of principal axes that describe states; 0 takes their numbers.
        consecutive: Whether to describe pairs of states, for sequences.

    Raises:
        MergeError: There are too few episodes of at least two states, or a number is not finite.
    """
    first, rest, axes = clusters(episodes, count, seed, rank)
    size = first[0][0].shape[1] // (1 if consecutive else 2)
    parts = [pairs[:, :size] for pairs, _ in (*first, *rest)]
    covariances = [torch.cov(part.T, correction=0).view(size, size) for part in parts]
    total = sum(map(len, parts))
    return StateMixture(
        len(first),
        torch.tensor([len(part) / total for part in parts]),
        torch.stack([part.mean(0) for part in parts]).float(),
        torch.stack(list(map(_even, covariances))).float(),
        axes,
        consecutive,
    )


Cluster = tuple[torch.Tensor, np.ndarray]
"""Pairs of consecutive states, (m, 2 n), and the numbers of their episodes, (m,)."""


def clusters(
    episodes: Sequence[torch.Tensor], count: int, seed: int, rank: int = 0
) -> tuple[list[Cluster], list[Cluster], torch.Tensor | None]:
    """Returns the clusters of first pairs of episodes, of other pairs, and the principal axes.

    Each cluster has pairs of at least `LEAST_EPISODES`. See `measure_mixture`.
    """
    clipped = [each.double().clamp(-LIMIT, LIMIT) for each in episodes if len(each) > 1]
    if len(clipped) < LEAST_EPISODES or not all(
        bool(torch.isfinite(each).all()) for each in clipped
    ):
        raise MergeError(
            f"A mixture of states needs at least {LEAST_EPISODES} episodes of two or more finite "
            f"states; there are {len(clipped)}. Give more, or use a method that needs only "
            "moments, such as structured_compression."
        )
    axes = None
    if 0 < rank < clipped[0].shape[1]:
        clipped, axes = _along_axes(clipped, rank)
    pairs = [torch.cat([each[:-1], each[1:]], 1) for each in clipped]
    numbers = np.arange(len(pairs))
    first = _clusters(torch.stack([each[0] for each in pairs]), numbers, count, seed)
    of_rest = np.repeat(numbers, [len(each) - 1 for each in pairs])
    rest = _clusters(torch.cat([each[1:] for each in pairs]), of_rest, count, seed)
    return first, rest, axes


def _along_axes(
    episodes: Sequence[torch.Tensor], rank: int
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Returns coordinates of states along their principal axes, and the axes.

    Numbers are divided by their standard deviations, and second moments are about 0.
    """
    rows = torch.cat(list(episodes))
    spread = rows.std(0, correction=0)
    scale = spread.clamp(min=float(_LEAST_SPREAD * spread.mean()) or 1.0)
    scaled = rows / scale
    _, vectors = torch.linalg.eigh(_even(scaled.T @ scaled / len(rows)))
    vectors = vectors[:, -rank:]
    found = [(each / scale) @ vectors for each in episodes]
    return found, (scale[:, None] * vectors).float()


def _clusters(pairs: torch.Tensor, episodes: np.ndarray, count: int, seed: int) -> list[Cluster]:
    """Returns pairs in at most `count` clusters by their states (k-means++).

    Each cluster has at least `LEAST_EPISODES` episodes, given by the number of each pair's episode.
    If there are fewer in all, there is no cluster.
    """
    from scipy.cluster.vq import kmeans2

    if len(np.unique(episodes)) < LEAST_EPISODES:
        return []
    states, generator = pairs[:, : pairs.shape[1] // 2].numpy(), np.random.default_rng(seed)
    drawn = [int(generator.integers(len(states)))]
    squares = np.square(states - states[drawn[0]]).sum(-1)  # distances to the next center
    while len(drawn) < count and squares.sum() > 0:
        drawn.append(int(generator.choice(len(states), p=squares / squares.sum())))
        squares = np.minimum(squares, np.square(states - states[drawn[-1]]).sum(-1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of clusters that become empty
        _, found = kmeans2(states, states[drawn], minit="matrix")
    while True:
        names = np.unique(found)
        sizes = [len(np.unique(episodes[found == index])) for index in names]
        if min(sizes) >= LEAST_EPISODES:
            return [(pairs[found == index], episodes[found == index]) for index in names]
        smallest = names[int(np.argmin(sizes))]
        others = names[names != smallest]
        centers = np.stack([states[found == index].mean(0) for index in others])
        rows = found == smallest
        distances = np.square(states[rows, None] - centers).sum(-1)
        found[rows] = others[distances.argmin(1)]


def _root(covariance: torch.Tensor) -> torch.Tensor:
    """Returns a matrix F with F F^T closest to a covariance, perhaps with rounding errors."""
    values, vectors = torch.linalg.eigh(_even(covariance))
    return vectors * values.clamp(min=0).sqrt()


def _even(matrix: torch.Tensor) -> torch.Tensor:
    """Returns the symmetric part of a matrix, since only one triangle is sent."""
    return (matrix + matrix.T) / 2
