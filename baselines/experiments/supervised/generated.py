"""Generated examples: stand-ins where CIFAR-10 and LEAF's Shakespeare cannot be had.

Images of ten shapes have the size of CIFAR-10's and as many classes, and are much easier. Of texts,
each speaker draws the next letter either as all do, from the letter before the last one, or in an
own way, from the last one; so a network has to remember a letter to learn what is common. Tables
name them as what they are, `shapes32` and `markov_speakers`.
"""

from collections.abc import Callable

import numpy as np

SIZE = 32

Contour = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Whether points belong to a shape in the square from -1 to 1."""

CLASSES: dict[str, Contour] = {
    "disc": lambda x, y: x**2 + y**2 < 0.8,
    "ring": lambda x, y: abs(np.hypot(x, y) - 0.7) < 0.22,
    "square": lambda x, y: np.maximum(abs(x), abs(y)) < 0.8,
    "frame": lambda x, y: abs(np.maximum(abs(x), abs(y)) - 0.7) < 0.2,
    "triangle": lambda x, y: (y < 0.8) & (y > 2 * abs(x) - 0.8),
    "plus": lambda x, y: (np.minimum(abs(x), abs(y)) < 0.25) & (np.maximum(abs(x), abs(y)) < 0.9),
    "cross": lambda x, y: (abs(abs(x) - abs(y)) < 0.3) & (np.maximum(abs(x), abs(y)) < 0.9),
    "rows": lambda x, y: (np.sin(3 * np.pi * y) > 0) & (np.maximum(abs(x), abs(y)) < 0.9),
    "columns": lambda x, y: (np.sin(3 * np.pi * x) > 0) & (np.maximum(abs(x), abs(y)) < 0.9),
    "diamond": lambda x, y: abs(x) + abs(y) < 0.95,
}
"""The classes, in the order of their labels."""


def draw_shapes(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws images with random place, size, slight turn, colours and noise.

    Args:
        count: Number of images.
        seed: Seed of all draws.

    Returns:
        Images (count, 3, 32, 32) uint8, and labels (count,).
    """
    generator = np.random.default_rng((32, seed))
    labels = generator.integers(len(CLASSES), size=count)
    shapes, grid = list(CLASSES.values()), np.linspace(-1, 1, SIZE)
    images = np.empty((count, 3, SIZE, SIZE), np.uint8)
    for image, label in zip(images, labels, strict=True):
        radius, angle = generator.uniform(0.4, 0.9), generator.uniform(-0.3, 0.3)
        across, down = generator.uniform(radius - 1, 1 - radius, 2)
        u, v = np.meshgrid((grid - across) / radius, (grid - down) / radius)
        x, y = np.cos(angle) * u - np.sin(angle) * v, np.sin(angle) * u + np.cos(angle) * v
        inside = shapes[label](x, y)
        back, front = generator.uniform(0, 1, (2, 3))
        front = np.where(np.linalg.norm(front - back) < 0.5, 1 - back, front)
        plain = np.where(inside, front[:, None, None], back[:, None, None])
        noisy = plain + generator.normal(0, 0.1, plain.shape)
        image[:] = np.clip(255 * noisy, 0, 255).astype(np.uint8)
    return images, labels


SPEAKERS, LETTERS, LENGTH = 20, 12, 16

_OWN = 0.4
"""Share of a speaker's own way."""

_SPREAD = 0.05
"""Parameter of the Dirichlet distributions of letters: most follow a letter with one or two."""


def draw_speakers(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws texts; those of different seeds have the same speakers.

    Args:
        count: Number of texts of each speaker.
        seed: Seed of the texts.

    Returns:
        Texts (n, LENGTH), the letters that follow them (n,), and their speakers (n,), all int64.
    """
    ways = np.random.default_rng(12)
    common = ways.dirichlet([_SPREAD] * LETTERS, LETTERS)  # rows: the letter before the last one
    generator = np.random.default_rng((16, seed))
    texts = np.empty((SPEAKERS, count, LENGTH + 1), np.int64)
    for lines in texts:
        own = ways.dirichlet([_SPREAD] * LETTERS, LETTERS)  # rows: the last letter
        lines[:, :2] = generator.integers(LETTERS, size=(count, 2))
        for place in range(2, LENGTH + 1):
            before, last = lines[:, place - 2], lines[:, place - 1]
            rows = np.cumsum((1 - _OWN) * common[before] + _OWN * own[last], -1)
            drawn = (rows < generator.uniform(size=(count, 1))).sum(1)
            lines[:, place] = np.minimum(drawn, LETTERS - 1)
    order = generator.permutation(SPEAKERS * count)
    rows = texts.reshape(-1, LENGTH + 1)[order]
    return rows[:, :-1].copy(), rows[:, -1].copy(), np.repeat(np.arange(SPEAKERS), count)[order]
