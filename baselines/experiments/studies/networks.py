"""The networks of the studies, small enough to train in seconds, with their tables of axes.

They take images of shape (n, 64) and return logits of shape (n, 10); recurrent ones and the
transformer read an image as a sequence of its 8 rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn

from fleet_tools.baselines.merging.symmetry import attention as att
from fleet_tools.baselines.merging.symmetry import layers as lay
from fleet_tools.baselines.merging.symmetry.table import Symmetry

IMAGE_SHAPE = (8, 8)

RecurrentModule = type[nn.RNN] | type[nn.LSTM] | type[nn.GRU]

RecurrentTable = Callable[[str, str, list[str]], lay.Table]
"""Returns the table of a recurrent module from its name, its input and the units of its layers."""


class RecurrentClassifier(nn.Module):
    """Two recurrent layers, and a linear layer on the output after the last row."""

    def __init__(self, core: RecurrentModule, hidden: int) -> None:
        super().__init__()
        self.core = core(8, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Returns the logits."""
        return self.head(self.core(images.unflatten(1, IMAGE_SHAPE))[0][:, -1])


class TransformerClassifier(nn.Module):
    """Two encoder layers with learned positions, and a linear layer on the mean over rows."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.rows = nn.Linear(8, width)
        self.positions = nn.Parameter(0.1 * torch.randn(8, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(2)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Returns the logits."""
        x = self.rows(images.unflatten(1, IMAGE_SHAPE)) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(dim=1))


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


def _mlp() -> nn.Module:
    widths = (64, 512, 512, 512, 512, 10)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, *IMAGE_SHAPE)),
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def _recurrent(title: str, core: RecurrentModule, hidden: int, table: RecurrentTable) -> Network:
    return Network(
        title,
        lambda: RecurrentClassifier(core, hidden),
        Symmetry.of(table("core", "_", ["h0", "h1"]), lay.linear("head", "h1", "_")),
    )


NETWORKS = {
    "mlp": Network(
        "MLP 4x512",
        _mlp,
        Symmetry.of(lay.mlp(["0", "2", "4", "6", "8"], ["_", "h1", "h2", "h3", "h4", "_"])),
    ),
    "elman": _recurrent("Elman 2x256", nn.RNN, 256, lay.elman),
    "lstm": _recurrent("LSTM 2x128", nn.LSTM, 128, lay.lstm),
    "gru": _recurrent("GRU 2x128", nn.GRU, 128, lay.gru),
    "cnn": Network(
        "CNN + BatchNorm",
        _cnn,
        Symmetry.of(
            lay.conv("1", "_", "c1"), lay.batch_norm("2", "c1"),
            lay.conv("4", "c1", "c2"), lay.batch_norm("5", "c2"),
            lay.linear("9", "c2 _hw:16", "h"), lay.linear("11", "h", "_"),
        ),
    ),
    "transformer": Network(
        "Transformer 2x64",
        TransformerClassifier,
        Symmetry.of(
            lay.linear("rows", "_", "stream"),
            {"positions": "_ stream"},
            *[att.transformer_encoder_layer(f"layers.{i}", 4, f"l{i}", "stream") for i in range(2)],
            lay.layer_norm("norm", "stream"),
            lay.linear("head", "stream", "_"),
        ),
    ),
}  # fmt: skip
"""Networks by name, as `--only` of `fleet_tools.baselines.studies` takes them."""

LINEAR = Network(
    "linear", lambda: nn.Sequential(nn.Linear(64, 10)), Symmetry.of(lay.linear("0", "_", "_"))
)
"""No hidden layer: a control."""
