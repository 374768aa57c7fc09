"""Labelled images, and their partition among models."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike


class ImageShape(NamedTuple):
    """Shape of images, and the number of their classes."""

    channels: int
    height: int
    width: int
    classes: int

    @property
    def pixels(self) -> int:
        """Number of numbers of an image."""
        return self.channels * self.height * self.width


@dataclass(frozen=True, eq=False)
class Labelled:
    """Some labelled images.

    Attributes:
        images: Values from 0 to 1, (n, channels * height * width), row-major.
        labels: Classes from 0, (n,).
        shape: Shape of the images, and the number of classes.
    """

    images: torch.Tensor
    labels: torch.Tensor
    shape: ImageShape

    def __len__(self) -> int:
        """Returns the number of images."""
        return len(self.labels)

    def subset(self, indices: ArrayLike | torch.Tensor) -> "Labelled":
        """Returns the images of some indices."""
        indices = torch.as_tensor(indices)
        return Labelled(self.images[indices], self.labels[indices], self.shape)

    def first(self, count: int | None) -> "Labelled":
        """Returns the first images; all if `count` is None, or more than there are."""
        return self.subset(range(len(self))[:count])


def partition(
    data: Labelled, parts: int, alpha: float, generator: np.random.Generator
) -> list[Labelled]:
    """Partitions the images of each class in proportions from a Dirichlet distribution.

    Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural Networks", 2019. The
    parts differ in size, unlike those of `fleet_tools.dataset.partition`.

    Args:
        data: All images.
        parts: Number of parts; each has at least two images.
        alpha: Concentration: near 0, each class belongs to one part; if it is large, all parts have
            the same mixture.
        generator: Draws the proportions, again until each part has two images.
    """
    labels = data.labels.numpy()
    while True:
        chosen: list[list[int]] = [[] for _ in range(parts)]
        for label in range(data.shape.classes):
            members = generator.permutation(np.flatnonzero(labels == label))
            proportions = np.cumsum(generator.dirichlet([alpha] * parts))[:-1]
            cuts = (proportions * len(members)).astype(int)
            for part, indices in zip(chosen, np.split(members, cuts), strict=True):
                part.extend(indices.tolist())
        if min(map(len, chosen)) >= 2:
            return [data.subset(np.array(part)) for part in chosen]
