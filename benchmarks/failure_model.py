"""Where policies fail: a model of it, fitted to the candidates that have been tried.

Kernel ridge regression with the kernel (1 + x.y / F)^3 of F standardized numbers of a scene, that
is a polynomial of third degree in them; the ridge has the least error of leaving one out (closed
form: Hastie, Tibshirani and Friedman 2009, section 7.10, and Rasmussen and Williams 2006, 5.4.2).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fleet_tools.sim.scene import Scene

SPLITS = ("train", "unseen_pairs", "unseen_tools", "unseen_objects")

_AT_RANDOM = 4
"""One of so many candidates of a round is the next one, whatever the model expects of it."""
_DEGREE = 3
_RIDGES = 10.0 ** np.arange(-2, 4)
_UNSEEN = {"task", "seed", "cameras", "push", "table_texture"}
"""Entries of a scene that have no effect on a policy that acts on keypoints; nor have tints."""


def scene_numbers(scenes: Sequence[Scene]) -> np.ndarray:
    """Returns what a policy on keypoints can meet in some scenes.

    Args:
        scenes: N of them, of one task.

    Returns:
        (N, F) numbers of the scenes, standardized: those of poses, joints, scales, resistances and
        forces, and 1 or 0 for each tool and each object. Numbers that all of them share are left
        out.
    """
    rows = [dict(_numbers(scene.model_dump(exclude=_UNSEEN))) for scene in scenes]
    names = sorted({name for row in rows for name in row if "_tint" not in name})
    values = np.array([[row.get(name, 0.0) for name in names] for row in rows])
    spread = values.std(axis=0)
    different = spread > 1e-9
    return (values[:, different] - values[:, different].mean(axis=0)) / spread[different]


def _numbers(content: Any, name: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _numbers(value, f"{name}.{key}")
    elif isinstance(content, list | tuple):
        for index, value in enumerate(content):
            yield from _numbers(value, f"{name}.{index}")
    elif isinstance(content, str):
        yield f"{name}={content}", 1.0
    elif content is not None:
        yield name, float(content)


def expected(known: np.ndarray, values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Returns what the model expects of other scenes.

    Args:
        known: (N, F) numbers of scenes, see `scene_numbers`; N at least 2.
        values: (N,) what is known of them.
        others: (M, F) numbers of others.

    Returns:
        (M,) expected values.
    """
    mean = values.mean()
    eigenvalues, vectors = np.linalg.eigh(_kernel(known, known))
    rotated = vectors.T @ (values - mean)
    best, weights = np.inf, np.zeros(len(values))
    for ridge in _RIDGES:
        shrunk = 1 / (np.maximum(eigenvalues, 0) + ridge)
        candidate = vectors @ (shrunk * rotated)
        error = np.square(candidate / (vectors**2 @ shrunk)).sum()  # of leaving each one out
        if error < best:
            best, weights = error, candidate
    return mean + _kernel(others, known) @ weights


def _kernel(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (1 + one @ other.T / one.shape[1]) ** _DEGREE


@dataclass
class Pool:
    """The candidates of a task, and how hard those are that have been tried.

    Attributes:
        pairs: Split, tool and object of each of N candidates, in the order of their seeds.
        numbers: (N, F), see `scene_numbers`.
        hardest: Difficulty of the hardest scene that can be, where all policies fail.
        batch: Number of candidates of a split in a round; fewer where little is lacking.
        wanted: Number of scenes of a split.
        alike: Number of them, at most, of the same tool and object.
        difficulty: Of those that have been tried, by index.
    """

    pairs: Sequence[tuple[str, str, str]]
    numbers: np.ndarray
    hardest: float
    batch: int
    wanted: int
    alike: int
    difficulty: dict[int, float] = field(default_factory=dict)

    def next_candidates(self) -> list[int]:
        """Returns the indices of a round's, the first of each split at random.

        The others are those that the model expects to be hardest; in the first round, all are at
        random. None is of a split that has what is wanted of the hardest ones, and of one tool and
        object there are no more than may be alike.
        """
        found = self.found()
        tried = [*self.difficulty]
        hoped = np.zeros(len(self.pairs))
        if tried:
            values = np.array([*self.difficulty.values()])
            hoped = expected(self.numbers[tried], values, self.numbers)
        chosen: list[int] = []
        for split in SPLITS:
            done = [k for k in found[split] if self.difficulty[k] >= self.hardest]
            if len(done) >= self.wanted:
                continue
            fresh = [
                k
                for k, (of, *_) in enumerate(self.pairs)
                if of == split and k not in self.difficulty
            ]
            number = min(self.batch, 2 * (self.wanted - len(done)))
            at_random = -(-number // _AT_RANDOM) if tried else number
            chosen += fresh[:at_random]
            left = number - at_random
            taken = Counter(self.pairs[k] for k in done)
            for k in sorted(fresh[at_random:], key=lambda k: -hoped[k]):
                if left and taken[self.pairs[k]] < self.alike:
                    chosen.append(k)
                    taken[self.pairs[k]] += 1
                    left -= 1
        return chosen

    def found(self) -> dict[str, list[int]]:
        """Returns the indices of each split's hardest scenes, the hardest first."""
        found: dict[str, list[int]] = {split: [] for split in SPLITS}
        count = Counter[tuple[str, str, str]]()
        for k in sorted(self.difficulty, key=lambda k: (-self.difficulty[k], k)):
            of_split = found[self.pairs[k][0]]
            if len(of_split) < self.wanted and count[self.pairs[k]] < self.alike:
                of_split.append(k)
                count[self.pairs[k]] += 1
        return found
