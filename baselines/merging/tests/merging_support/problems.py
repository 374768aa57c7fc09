"""Networks that are wide enough to distinguish units, and data holders for them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from merging_support.architectures import Architecture, Recurrent, numbers
from torch import nn

from fleet_merging.moments.affine_maps import AffineMap
from fleet_merging.moments.measurement import LabelledBatch
from fleet_merging.moments.rows import applied_maps
from fleet_merging.problem import MergeProblem
from fleet_merging.queries.data_holder import LocalDataHolder, Policy
from fleet_merging.symmetry import layers as att
from fleet_merging.symmetry import layers as lay
from fleet_merging.symmetry.table import State, Symmetry


class _Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(3, 24), nn.Linear(24, 2)
        self.layer = nn.TransformerEncoderLayer(24, 4, 20, dropout=0.0, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.layer(self.into(x)))


def _recurrent(kind: Callable[..., nn.Module], table: Callable[..., lay.Table]) -> Architecture:
    return Architecture(
        lambda: Recurrent(kind(3, 24, num_layers=2, batch_first=True), 24),
        Symmetry.of(table("core", "_", ["h0", "h1"]), lay.linear("head", "h1", "_")),
        lambda: numbers(20, 6, 3),
    )


WIDE = {
    "mlp": Architecture(
        lambda: nn.Sequential(
            nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 2)
        ),
        Symmetry.of(lay.mlp(["0", "2", "4"], ["_", "h1", "h2", "_"])),
        lambda: numbers(40, 3),
    ),
    "elman": _recurrent(nn.RNN, lay.elman),
    "lstm": _recurrent(nn.LSTM, lay.lstm),
    "gru": _recurrent(nn.GRU, lay.gru),
    "conv": Architecture(
        lambda: nn.Sequential(
            nn.Conv2d(2, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(256, 2)
        ),
        Symmetry.of(
            lay.conv("0", "_", "c"), lay.batch_norm("1", "c"), lay.linear("4", "c _hw:16", "_")
        ),
        lambda: numbers(20, 2, 6, 6),
    ),
    "transformer": Architecture(
        _Attending,
        Symmetry.of(
            lay.mlp(["into", "out"], ["_", "res", "_"]),
            att.transformer_encoder_layer("layer", 4, "l0", "res"),
        ),
        lambda: numbers(20, 5, 3),
    ),
}
"""Networks whose units differ enough to be matched exactly."""


def resized(kind: str, factor: float) -> nn.Module:
    """Returns a network like one of `WIDE`, with hidden layers a number of times as wide."""
    return _resized(kind, factor).double().eval()


def _resized(kind: str, factor: float) -> nn.Module:
    first, second, channels = (int(factor * size) for size in (32, 24, 16))
    if kind == "mlp":
        return nn.Sequential(
            nn.Linear(3, first),
            nn.ReLU(),
            nn.Linear(first, second),
            nn.ReLU(),
            nn.Linear(second, 2),
        )
    if kind == "conv":
        return nn.Sequential(
            nn.Conv2d(2, channels, 3),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * channels, 2),
        )
    core = {"elman": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[kind]
    return Recurrent(core(3, second, num_layers=2, batch_first=True), second)


def noisy(state: State, scale: float, seed: int) -> dict[str, torch.Tensor]:
    """Returns a model, each number changed by about `scale` relative to itself."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: tensor * (1 + scale * torch.randn(tensor.shape, generator=generator).to(tensor))
        if tensor.is_floating_point()
        else tensor.clone()
        for name, tensor in state.items()
    }


def make_data_holder(
    architecture: Architecture, targets: torch.Tensor, inputs: torch.Tensor | None = None
) -> LocalDataHolder:
    """Returns a data holder whose loss is the mean squared error of outputs.

    Args:
        architecture: The architecture.
        targets: The targets.
        inputs: The inputs; those of the example if None.
    """
    given = architecture.example() if inputs is None else inputs

    def loss(policy: Policy, seed: int | None) -> torch.Tensor:
        rows = torch.arange(len(given))
        if seed is not None:
            generator = torch.Generator().manual_seed(seed)
            rows = torch.randperm(len(given), generator=generator)[:10]
        return (policy(given[rows]) - targets[rows]).square().mean()

    labels = targets.reshape(-1, targets.shape[-1])
    return LocalDataHolder(architecture.build(), loss, lambda: [LabelledBatch((given,), labels)])


def make_problem(
    architecture: Architecture,
    models: Sequence[State],
    data_holders: Sequence[LocalDataHolder],
    **fields: Any,
) -> MergeProblem:
    """Returns the problem of merging models of an architecture, each with its own data."""
    return MergeProblem(
        architecture.symmetry,
        models,
        data_holders=data_holders,
        affine_maps=maps_of(architecture),
        module=architecture.build().eval(),
        example=architecture.example(),
        **fields,
    )


def maps_of(architecture: Architecture) -> tuple[AffineMap, ...]:
    """Returns the affine maps of an architecture in the order in which they are applied."""
    return applied_maps(architecture.build().eval(), architecture.example())
