"""Handwritten digits that scikit-learn provides: 1,797 images of 8 x 8 pixels, in 10 classes."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike

from fleet_tools.utils.libraries import require

TRAINING_COUNT = 1400
"""Number of images for training; the others are for the test."""


@dataclass(frozen=True)
class Digits:
    """Some of the images.

    Attributes:
        images: Grey values from 0 to 1, (n, 64).
        labels: Digits from 0 to 9, (n,).
    """

    images: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        """Returns the number of images."""
        return len(self.labels)

    def subset(self, indices: ArrayLike | torch.Tensor) -> "Digits":
        """Returns the images of some indices."""
        indices = torch.as_tensor(indices)
        return Digits(self.images[indices], self.labels[indices])


def load() -> tuple[Digits, Digits]:
    """Returns 1,400 images for training and 397 for the test; the split is always the same.

    Raises:
        MissingLibraryError: scikit-learn cannot be imported.
    """
    require("sklearn", "study merging on digits")
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    digits = Digits(
        torch.tensor(images / 16.0, dtype=torch.float32), torch.tensor(labels, dtype=torch.int64)
    )
    order = np.random.default_rng(0).permutation(len(digits))
    return digits.subset(order[:TRAINING_COUNT]), digits.subset(order[TRAINING_COUNT:])


def partition(
    digits: Digits, parts: int, alpha: float, generator: np.random.Generator
) -> list[Digits]:
    """Partitions the images of each class in proportions from a Dirichlet distribution.

    Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural Networks", 2019. The
    parts differ in size, unlike those of `fleet_tools.dataset.partition`.

    Args:
        digits: All images.
        parts: Number of parts; each has at least two images.
        alpha: Concentration: near 0, each class belongs to one part; if it is large, all parts have
            the same mixture.
        generator: Draws the proportions, again until each part has two images.
    """
    while True:
        chosen: list[list[int]] = [[] for _ in range(parts)]
        for label in range(10):
            members = generator.permutation(np.flatnonzero(digits.labels.numpy() == label))
            proportions = np.cumsum(generator.dirichlet([alpha] * parts))[:-1]
            cuts = (proportions * len(members)).astype(int)
            for part, indices in zip(chosen, np.split(members, cuts), strict=True):
                part.extend(indices.tolist())
        if min(map(len, chosen)) >= 2:
            return [digits.subset(np.array(part)) for part in chosen]
