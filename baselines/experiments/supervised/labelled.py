"""Labelled images and texts, and their partition among models."""

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


class TextShape(NamedTuple):
    """Length of a text, and number of different characters; a label is the character after it."""

    length: int
    classes: int


Shape = ImageShape | TextShape


@dataclass(frozen=True, eq=False)
class Labelled:
    """Some labelled examples.

    Attributes:
        inputs: Images, values from 0 to 1, (n, channels * height * width), row-major; or texts,
            numbers of characters, (n, length) int64.
        labels: Classes from 0, (n,).
        shape: Shape of an example, and the number of classes.
        speakers: Speaker of each text, (n,); None for images.
    """

    inputs: torch.Tensor
    labels: torch.Tensor
    shape: Shape
    speakers: torch.Tensor | None = None

    def __len__(self) -> int:
        """Returns the number of examples."""
        return len(self.labels)

    @property
    def targets(self) -> torch.Tensor:
        """Outputs to learn for these examples: classes (n,), or next characters (n, length)."""
        if isinstance(self.shape, ImageShape):
            return self.labels
        return torch.cat([self.inputs[:, 1:], self.labels[:, None]], 1)

    def subset(self, indices: ArrayLike | torch.Tensor) -> "Labelled":
        """Returns the examples of some indices."""
        indices = torch.as_tensor(indices)
        speakers = None if self.speakers is None else self.speakers[indices]
        return Labelled(self.inputs[indices], self.labels[indices], self.shape, speakers)

    def first(self, count: int | None) -> "Labelled":
        """Returns the first examples; all if `count` is None, or more than there are."""
        return self if count is None else self.subset(torch.arange(min(count, len(self))))


def partition(
    data: Labelled, parts: int, alpha: float, generator: np.random.Generator
) -> list[Labelled]:
    """Partitions examples of each class, or of each speaker, in proportions of Dirichlet's.

    Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural Networks", 2019. The
    parts differ in size, unlike the parts of `fleet_tools.dataset.partition`.

    Args:
        data: All examples.
        parts: Number of parts; each has at least two examples.
        alpha: Concentration: near 0, each class belongs to one part; if it is large, all parts have
            the same mixture.
        generator: Draws the proportions, again until each part has two examples.
    """
    kinds = (data.labels if data.speakers is None else data.speakers).numpy()
    last = data.shape.classes if data.speakers is None else int(kinds.max()) + 1
    while True:
        chosen: list[list[int]] = [[] for _ in range(parts)]
        for kind in range(last):
            members = generator.permutation(np.flatnonzero(kinds == kind))
            proportions = np.cumsum(generator.dirichlet([alpha] * parts))[:-1]
            cuts = (proportions * len(members)).astype(int)
            for part, indices in zip(chosen, np.split(members, cuts), strict=True):
                part.extend(indices.tolist())
        if min(map(len, chosen)) >= 2:
            return [data.subset(np.array(part)) for part in chosen]
