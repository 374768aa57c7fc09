"""Handwritten digits that ship with scikit-learn: 1,797 pictures of 8 x 8 pixels, 10 classes."""

from dataclasses import dataclass

import numpy as np
import torch

from fleet_tools.utils.libraries import require

TRAINING = 1400


@dataclass(frozen=True)
class Digits:
    """Some of the pictures.

    Attributes:
        pictures: Grey values from 0 to 1, shape (n, 64).
        labels: 0 to 9, shape (n,).
    """

    pictures: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def chosen(self, indices: np.ndarray | torch.Tensor) -> "Digits":
        """Those of some indices."""
        indices = torch.as_tensor(indices)
        return Digits(self.pictures[indices], self.labels[indices])


def load() -> tuple[Digits, Digits]:
    """1,400 pictures to train with and 397 to test with; always the same split.

    Raises:
        MissingLibraryError: scikit-learn is absent.
    """
    require("sklearn", "study merging on digits")
    from sklearn.datasets import load_digits

    pictures, labels = load_digits(return_X_y=True)
    digits = Digits(
        torch.tensor(pictures / 16.0, dtype=torch.float32), torch.tensor(labels, dtype=torch.int64)
    )
    order = np.random.default_rng(0).permutation(len(digits))
    return digits.chosen(order[:TRAINING]), digits.chosen(order[TRAINING:])


def partition(
    digits: Digits, parts: int, alpha: float, generator: np.random.Generator
) -> list[Digits]:
    """Deals each class to parts in shares drawn from a Dirichlet distribution.

    Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural Networks", 2019. Parts
    differ in size, too; those of `fleet_tools.dataset.partition` do not.

    Args:
        digits: All of them.
        parts: How many; each receives two pictures at least.
        alpha: Concentration: near 0 each class goes to one part; large, to all alike.
        generator: Draws the shares, again until each part has its two.
    """
    while True:
        dealt: list[list[int]] = [[] for _ in range(parts)]
        for label in range(10):
            of_label = generator.permutation(np.flatnonzero(digits.labels.numpy() == label))
            shares = np.cumsum(generator.dirichlet([alpha] * parts))[:-1]
            cuts = (shares * len(of_label)).astype(int)
            for part, indices in zip(dealt, np.split(of_label, cuts), strict=True):
                part.extend(indices.tolist())
        if min(map(len, dealt)) >= 2:
            return [digits.chosen(np.array(part)) for part in dealt]
