"""The networks of the studies, small enough to train in seconds, with their tables of axes.

Each reads pictures of shape (n, 64) and returns logits of shape (n, 10); recurrent ones and the
Transformer read a picture as a sequence of its 8 rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn

from fleet_tools.baselines.merging.symmetry import attention as att
from fleet_tools.baselines.merging.symmetry import layers as lay
from fleet_tools.baselines.merging.symmetry.table import Symmetry

ROWS = (8, 8)


class Recurrent(nn.Module):
    """Two recurrent layers; the last state after the last row is classified."""

    def __init__(self, core: type[nn.Module], hidden: int) -> None:
        super().__init__()
        self.core = core(8, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, 10)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.head(self.core(pictures.unflatten(1, ROWS))[0][:, -1])


class Transformer(nn.Module):
    """Two encoder layers over the rows, with learned positions; their mean is classified."""

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

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        x = self.rows(pictures.unflatten(1, ROWS)) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(dim=1))


@dataclass(frozen=True)
class Network:
    """An architecture and its table.

    Attributes:
        title: With its size.
        make: Returns a module with new weights.
        symmetry: Its table.
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
        nn.Unflatten(1, (1, *ROWS)),
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def _recurrent(title: str, core: type[nn.Module], hidden: int, table) -> Network:
    return Network(
        title,
        lambda: Recurrent(core, hidden),
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
        Transformer,
        Symmetry.of(
            lay.linear("rows", "_", "stream"),
            {"positions": "_ stream"},
            *[att.transformer_encoder_layer(f"layers.{i}", 4, f"l{i}", "stream") for i in range(2)],
            lay.layer_norm("norm", "stream"),
            lay.linear("head", "stream", "_"),
        ),
    ),
}  # fmt: skip
"""By name, as `--only` takes them."""
