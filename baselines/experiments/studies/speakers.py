"""Generated texts of speakers: a stand-in where LEAF's Shakespeare cannot be had.

Each speaker draws the next letter from the last one and the one before, partly as all do and partly
in an own way. Tables name the texts as what they are, `markov_speakers`.
"""

import numpy as np

SPEAKERS, LETTERS, LENGTH = 20, 12, 16

_OWN = 0.5
"""Share of a speaker's own way."""


def draw(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws texts; those of different seeds have the same speakers.

    Args:
        count: Number of texts of each speaker.
        seed: Seed of the texts.

    Returns:
        Texts (n, LENGTH), the letters that follow them (n,), and their speakers (n,), all int64.
    """
    ways = np.random.default_rng(12)
    shape = (LETTERS, LETTERS)  # the letter before the last one, and the last one
    common = ways.dirichlet([0.2] * LETTERS, shape)
    generator = np.random.default_rng((16, seed))
    texts = np.empty((SPEAKERS, count, LENGTH + 1), np.int64)
    for lines in texts:
        way = (1 - _OWN) * common + _OWN * ways.dirichlet([0.2] * LETTERS, shape)
        cumulated = np.cumsum(way, -1)
        lines[:, :2] = generator.integers(LETTERS, size=(count, 2))
        for place in range(2, LENGTH + 1):
            rows = cumulated[lines[:, place - 2], lines[:, place - 1]]
            drawn = (rows < generator.uniform(size=(count, 1))).sum(1)
            lines[:, place] = np.minimum(drawn, LETTERS - 1)
    order = generator.permutation(SPEAKERS * count)
    rows = texts.reshape(-1, LENGTH + 1)[order]
    return rows[:, :-1].copy(), rows[:, -1].copy(), np.repeat(np.arange(SPEAKERS), count)[order]
