"""The networks of labelled examples, with their tables of axes.

Networks of images take rows of pixels and return logits. Recurrent ones and the transformer read an
image as a sequence of its rows. The language model takes numbers of characters, and returns logits
of the next character at each position.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import torch
from torch import nn

from fleet_merging.symmetry import layers as att
from fleet_merging.symmetry import layers as lay
from fleet_merging.symmetry.table import Symmetry
from fleet_tools.baselines.experiments.supervised.labelled import ImageShape, Shape, TextShape
from fleet_tools.errors import require_name

RecurrentModule = type[nn.RNN] | type[nn.LSTM] | type[nn.GRU]

RecurrentTable = Callable[[str, str, list[str]], lay.Table]
"""Returns the table of a recurrent module from its name, its input and the units of its layers."""


class RecurrentClassifier(nn.Module):
    """Two recurrent layers, and a linear layer on the output after the last row."""

    def __init__(self, shape: ImageShape, core: RecurrentModule, hidden: int) -> None:
        super().__init__()
        self.shape = shape
        self.core = core(shape.channels * shape.width, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, shape.classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Returns the logits."""
        return self.head(self.core(_rows(images, self.shape))[0][:, -1])


class TransformerClassifier(nn.Module):
    """Two encoder layers with learned positions, and a linear layer on the mean over rows."""

    def __init__(self, shape: ImageShape, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.shape = shape
        self.rows = nn.Linear(shape.channels * shape.width, width)
        self.positions = nn.Parameter(0.1 * torch.randn(shape.height, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(2)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, shape.classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Returns the logits."""
        x = self.rows(_rows(images, self.shape)) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(dim=1))


class LanguageModel(nn.Module):
    """Embedded characters, two recurrent layers, and a linear layer on each output."""

    def __init__(self, shape: TextShape, hidden: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.classes, 8)
        self.core = nn.LSTM(8, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, shape.classes)

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        """Returns the logits of the character after each, (n, length, classes)."""
        return self.head(self.core(self.embedding(texts))[0])


class LastCharacters(nn.Module):
    """The last characters up to each position of a text, one-hot; zeros before its beginning."""

    def __init__(self, shape: TextShape, count: int = 8) -> None:
        super().__init__()
        self.count, self.classes = min(count, shape.length), shape.classes

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        """Returns (n, length, count * classes)."""
        one_hot = nn.functional.one_hot(texts, self.classes).float()
        padded = nn.functional.pad(one_hot, (0, 0, self.count - 1, 0))
        return padded.unfold(1, self.count, 1).transpose(2, 3).flatten(2)


@dataclass(frozen=True)
class Network:
    """An architecture and its table of axes.

    Attributes:
        title: Name and size.
        make: Returns a module with new weights.
        symmetry: The table.
    """

    title: str
    make: Callable[[], nn.Module]
    symmetry: Symmetry


def _rows(images: torch.Tensor, shape: ImageShape) -> torch.Tensor:
    """Returns the rows of images, all channels of each side by side."""
    unflattened = images.unflatten(1, (shape.channels, shape.height, shape.width))
    return unflattened.transpose(1, 2).flatten(2)


def _mlp(shape: ImageShape, layers: int = 4, width: int = 512) -> Network:
    widths = (shape.pixels, *[width] * layers, shape.classes)

    def make() -> nn.Module:
        modules: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            modules += [nn.Linear(inputs, outputs), nn.ReLU()]
        return nn.Sequential(*modules[:-1])

    units = [f"h{number}" for number in range(1, layers + 1)]
    table = lay.mlp([str(2 * number) for number in range(layers + 1)], ["_", *units, "_"])
    return Network(f"MLP {layers}x{width}", make, Symmetry.of(table))


def _cnn(shape: ImageShape) -> Network:
    # Large images are pooled twice: the second moments of the first linear layer have the square
    # of its inputs, 2 GB with 32 x 32 pixels that are pooled once.
    first_pool = 2 if min(shape.height, shape.width) >= 16 else 1
    pooled = (shape.height // (2 * first_pool)) * (shape.width // (2 * first_pool))

    def make() -> nn.Module:
        return nn.Sequential(
            nn.Unflatten(1, (shape.channels, shape.height, shape.width)),
            nn.Conv2d(shape.channels, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.MaxPool2d(first_pool),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(64 * pooled, 128), nn.ReLU(), nn.Linear(128, shape.classes),
        )  # fmt: skip

    table = Symmetry.of(
        lay.conv("1", "_", "c1"), lay.batch_norm("2", "c1"),
        lay.conv("5", "c1", "c2"), lay.batch_norm("6", "c2"),
        lay.linear("10", f"c2 _hw:{pooled}", "h"), lay.linear("12", "h", "_"),
    )  # fmt: skip
    return Network(f"CNN + BatchNorm, pooled {first_pool} x 2", make, table)


def _recurrent(
    title: str, core: RecurrentModule, hidden: int, table: RecurrentTable
) -> Callable[[ImageShape], Network]:
    axes = Symmetry.of(table("core", "_", ["h0", "h1"]), lay.linear("head", "h1", "_"))
    return lambda shape: Network(title, lambda: RecurrentClassifier(shape, core, hidden), axes)


def _transformer(shape: ImageShape) -> Network:
    table = Symmetry.of(
        lay.linear("rows", "_", "stream"),
        {"positions": "_ stream"},
        *[att.transformer_encoder_layer(f"layers.{i}", 4, f"l{i}", "stream") for i in range(2)],
        lay.layer_norm("norm", "stream"),
        lay.linear("head", "stream", "_"),
    )
    return Network("Transformer 2x64", lambda: TransformerClassifier(shape), table)


def _language(shape: TextShape) -> Network:
    table = Symmetry.of(
        lay.embedding("embedding", "e"),
        lay.lstm("core", "e", ["h0", "h1"]),
        lay.linear("head", "h1", "_"),
    )
    return Network("LSTM 2x128 of characters", lambda: LanguageModel(shape), table)


IMAGE_NETWORKS: dict[str, Callable[[ImageShape], Network]] = {
    "mlp": _mlp,
    "elman": _recurrent("Elman 2x256", nn.RNN, 256, lay.elman),
    "lstm": _recurrent("LSTM 2x128", nn.LSTM, 128, lay.lstm),
    "gru": _recurrent("GRU 2x128", nn.GRU, 128, lay.gru),
    "cnn": _cnn,
    "transformer": _transformer,
}
"""Functions from the shape of images to networks, by name."""

TEXT_NETWORKS: dict[str, Callable[[TextShape], Network]] = {"language": _language}
"""The same for texts."""


def networks_of(shape: Shape) -> tuple[str, ...]:
    """Returns the names of the networks that learn such examples."""
    return tuple(IMAGE_NETWORKS if isinstance(shape, ImageShape) else TEXT_NETWORKS)


def network(name: str, shape: Shape) -> Network:
    """Returns a network for examples of some shape.

    Args:
        name: One of `networks_of`; "linear", a control without hidden layers; or an MLP of another
            size, such as mlp-2x128 (layers and units).
        shape: Shape of the examples.

    Raises:
        UnknownNameError: No network of this name learns such examples.
    """
    if name == "linear":
        return linear(shape)
    if size := re.fullmatch(r"mlp-([1-9]\d*)x([1-9]\d*)", name):
        require_name("network for these examples", "mlp", networks_of(shape))
        return _mlp(cast(ImageShape, shape), *map(int, size.groups()))
    require_name("network for these examples", name, networks_of(shape))
    if isinstance(shape, ImageShape):
        return IMAGE_NETWORKS[name](shape)
    return TEXT_NETWORKS[name](shape)


def linear(shape: Shape) -> Network:
    """Returns a network without hidden layers, a control; of a text, it reads the end."""
    if isinstance(shape, ImageShape):
        return Network(
            "linear",
            lambda: nn.Sequential(nn.Linear(shape.pixels, shape.classes)),
            Symmetry.of(lay.linear("0", "_", "_")),
        )
    count = LastCharacters(shape).count * shape.classes
    return Network(
        "linear",
        lambda: nn.Sequential(LastCharacters(shape), nn.Linear(count, shape.classes)),
        Symmetry.of(lay.linear("1", "_", "_")),
    )
