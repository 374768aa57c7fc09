"""Generated texts of speakers: a stand-in where LEAF's Shakespeare cannot be had.

Each speaker draws the next letter either as all do, from the letter before the last one, or in an
own way, from the last one. So a network has to remember a letter to learn what is common. Tables
name the texts as what they are, `markov_speakers`.
"""

import numpy as np

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
