"""A small network of every supported kind, with its table of axes."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from fleet_merging.symmetry import layers as att
from fleet_merging.symmetry import layers as lay
from fleet_merging.symmetry.table import State, Symmetry

torch.set_num_threads(1)  # threads do not pay off with tiny tensors


@dataclass(frozen=True)
class Architecture:
    """A kind of network."""

    make: Callable[[], nn.Module]
    symmetry: Symmetry
    example: Callable[[], Any]

    def build(self, seed: int = 0) -> nn.Module:
        """Returns a network with random weights and statistics, all different."""
        return deepcopy(_built(self.make, seed))

    def outputs(self, model: nn.Module, state: State | None = None) -> torch.Tensor:
        """Returns a network's output for the example, with its own or other weights."""
        arguments = self.example()
        arguments = arguments if isinstance(arguments, tuple) else (arguments,)
        with torch.no_grad():
            return torch.func.functional_call(
                model, model.state_dict() if state is None else dict(state), arguments
            )


@cache
def _built(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make().double().eval()
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) + 0.5 if "var" in name else tensor)
                tensor.add_(0.1 * torch.rand_like(tensor))
    return model


def numbers(*shape: int) -> torch.Tensor:
    """Returns normally distributed numbers, the same for the same shape."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class Recurrent(nn.Module):
    """A recurrent core and a linear head; its output is the actions, without the hidden state."""

    def __init__(self, core: nn.Module, features: int) -> None:
        super().__init__()
        self.core, self.head = core, nn.Linear(features, 2)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.head(self.core(observations)[0])


class Attend(nn.Module):
    """Attention over a sequence, to itself or to another one."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True, **options)

    def forward(self, queries: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        memory = queries if memory is None else memory
        return self.attention(queries, memory, memory, need_weights=False)[0]


class OwnAttention(nn.Module):
    """Attention made of four linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(6, 4)
        self.o = nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (f(x).unflatten(-1, (2, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.o(mixed.transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """Embeddings of words and positions, two encoder layers, and scores of words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(7, 8), nn.Embedding(5, 8)
        layers = [
            nn.TransformerEncoderLayer(8, 2, 10, batch_first=True, norm_first=first)
            for first in (False, True)
        ]
        self.layers = nn.ModuleList(layers)
        self.norm, self.out = nn.LayerNorm(8), nn.Linear(8, 7)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words) + self.positions(torch.arange(5))
        for layer in self.layers:
            x = layer(x)
        return self.out(self.norm(x))


class PointNet(nn.Module):
    """A shared MLP, the maximum over points, and a head with the arm's joints as another input."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv1d(3, 6, 1), nn.BatchNorm1d(6)
        self.conv2, self.bn2 = nn.Conv1d(6, 9, 1), nn.BatchNorm1d(9)
        self.fc1, self.fc2 = nn.Linear(9 + 4, 5), nn.Linear(5, 2)

    def forward(self, points: torch.Tensor, joints: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn1(self.conv1(points)))
        features = self.bn2(self.conv2(x)).amax(dim=-1)
        return self.fc2(torch.relu(self.fc1(torch.cat([features, joints], dim=-1))))


class Residual(nn.Module):
    """A residual stream with one block."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(3, 6), nn.Linear(6, 2)
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x)
        return self.out(x + self.down(torch.relu(self.up(self.norm(x)))))


ACTIVATIONS = (
    nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh,
    nn.Sigmoid, nn.LogSigmoid, nn.Softplus, nn.Softsign, nn.Hardtanh, nn.Hardswish, nn.Identity,
    nn.PReLU,
)  # fmt: skip


def _mlp(activation: type[nn.Module]) -> Architecture:
    tables = [lay.mlp(["0", "2", "4"], ["_obs", "h1", "h2", "_act"])]
    if activation is nn.PReLU:
        tables += [lay.prelu("1"), lay.prelu("3")]
    return Architecture(
        lambda: nn.Sequential(
            nn.Linear(3, 6), activation(), nn.Linear(6, 5), activation(), nn.Linear(5, 2)
        ),
        Symmetry.of(*tables),
        lambda: numbers(4, 3),
    )


def _recurrent(kind: str, bias: bool, bidirectional: bool = False) -> Architecture:
    modules = {"elman": nn.RNN, "relu": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
    table = {"elman": lay.elman, "relu": lay.elman, "lstm": lay.lstm, "gru": lay.gru}[kind]
    options = {"bias": bias, "bidirectional": bidirectional}
    extra: dict[str, Any] = {"nonlinearity": "relu"} if kind == "relu" else {}
    return Architecture(
        lambda: Recurrent(
            modules[kind](3, 5, num_layers=2, batch_first=True, **options, **extra),
            10 if bidirectional else 5,
        ),
        Symmetry.of(
            table("core", "_obs", ["h0", "h1"], **options),
            lay.linear("head", "h1 | h1_reverse" if bidirectional else "h1", "_act"),
        ),
        lambda: numbers(2, 6, 3),
    )


def _convolutions(
    norm: Callable[[], nn.Module],
    table: lay.Table,
    channels: str = "c",
    activation: type[nn.Module] = nn.ReLU,
) -> Architecture:
    return Architecture(
        lambda: nn.Sequential(
            nn.Conv2d(2, 6, 3),
            norm(),
            activation(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(24, 3),
        ),
        Symmetry.of(
            lay.conv("0", "_rgb", channels), table, lay.linear("5", f"{channels} _hw:4", "_act")
        ),
        lambda: numbers(2, 2, 6, 6),
    )


def _attend(
    memory: tuple[str, str] | None = None, bias: bool = True, **options: Any
) -> Architecture:
    table = att.multihead_attention("attention", 3, memory=memory, bias=bias)
    if options.get("add_bias_kv"):
        table |= {"attention.bias_k": "_ _ (head qk@head)", "attention.bias_v": "_ _ (head v@head)"}
    example = (numbers(2, 4, 12), numbers(2, 5, 7)) if memory else numbers(2, 4, 12)
    return Architecture(lambda: Attend(bias=bias, **options), Symmetry.of(table), lambda: example)


def _transformer(residual: str, units: bool) -> Architecture:
    tables = [
        lay.embedding("words", residual),
        lay.embedding("positions", residual),
        lay.layer_norm("norm", residual),
        lay.linear("out", residual, "_words"),
    ]
    for i in range(2):
        tables.append(att.transformer_encoder_layer(f"layers.{i}", 2, f"layer{i}", residual, units))
    words = torch.tensor([[0, 1, 2, 3, 4], [6, 5, 5, 1, 0]])
    return Architecture(Transformer, Symmetry.of(*tables), lambda: words)


def _residual(stream: str) -> Architecture:
    return Architecture(
        Residual,
        Symmetry.of(
            lay.mlp(["into", "out"], ["_obs", stream, "_act"]),
            lay.mlp(["up", "down"], [stream, "h", stream]),
            lay.layer_norm("norm", stream),
        ),
        lambda: numbers(4, 3),
    )


ARCHITECTURES = {
    **{f"mlp {activation.__name__}": _mlp(activation) for activation in ACTIVATIONS},
    **{
        f"{kind}{'' if bias else ' without bias'}": _recurrent(kind, bias)
        for kind in ("elman", "relu", "lstm", "gru")
        for bias in (True, False)
    },
    "bidirectional lstm": _recurrent("lstm", True, bidirectional=True),
    "conv and batch norm": _convolutions(lambda: nn.BatchNorm2d(6), lay.batch_norm("1", "c")),
    "conv and untracked, unscaled norm": _convolutions(
        lambda: nn.InstanceNorm2d(6), lay.batch_norm("1", "c", affine=False, tracked=False)
    ),
    "conv and layer norm": _convolutions(
        lambda: nn.LayerNorm([6, 4, 4]), lay.layer_norm("1", "c", "_h", "_w")
    ),
    "conv and group norm": _convolutions(
        lambda: nn.GroupNorm(3, 6),
        lay.group_norm("1", lay.grouped("g:3", "c")),
        lay.grouped("g:3", "c"),
    ),
    "conv and group norm of one group": _convolutions(
        lambda: nn.GroupNorm(1, 6), lay.group_norm("1", "c")
    ),
    "conv and prelu": _convolutions(
        lambda: nn.PReLU(6), lay.prelu("1", "c"), activation=nn.Identity  # a ReLU would hide it
    ),
    "every kind of conv": Architecture(
        lambda: nn.Sequential(
            nn.Conv1d(2, 6, 3), nn.Tanh(), nn.Conv1d(6, 9, 2, groups=3), nn.Tanh(),
            nn.Conv1d(9, 9, 3, groups=9), nn.Tanh(), nn.ConvTranspose1d(9, 2, 3, bias=False),
        ),
        Symmetry.of(
            lay.conv("0", "_", "g:3 a@g", 1),
            lay.conv("2", "a@g", "g:3 b@g", 1),  # in groups
            lay.conv("4", "_", "g b@g", 1),  # depthwise
            {"6.weight": "(g b@g) _ _"},  # transposed
        ),
        lambda: numbers(2, 2, 9),
    ),
    "glu": Architecture(
        lambda: nn.Sequential(nn.Linear(3, 12), nn.GLU(), nn.Linear(6, 2)),
        Symmetry.of(lay.linear("0", "_", "_glu:2 h"), lay.linear("2", "h", "_")),
        lambda: numbers(4, 3),
    ),
    "attention": _attend(),
    "attention without bias": _attend(bias=False),
    "attention with extra keys": _attend(add_bias_kv=True),
    "attention to a memory": _attend(memory=("_", "_"), kdim=7, vdim=7),
    "attention of four linears": Architecture(
        OwnAttention,
        Symmetry.of(att.attention("q", "k", "v", "o", 2)),
        lambda: numbers(2, 4, 6),
    ),
    "transformer": _transformer("_residual", units=True),
    "transformer of whole heads": _transformer("_residual", units=False),
    "transformer and its stream": _transformer("res", units=True),
    "residual": _residual("_residual"),
    "residual and its stream": _residual("res"),
    "pointnet": Architecture(
        PointNet,
        Symmetry.of(
            lay.conv("conv1", "_xyz", "c1", 1),
            lay.batch_norm("bn1", "c1"),
            lay.conv("conv2", "c1", "c2", 1),
            lay.batch_norm("bn2", "c2"),
            lay.mlp(["fc1", "fc2"], ["c2 | _joints:4", "h", "_act"]),
        ),
        lambda: (numbers(2, 3, 8), numbers(2, 4)),
    ),
}  # fmt: skip
