"""Networks as strangers bring them: reparametrized, tied, compiled, with state of other kinds.

Beside them, an adapter of low rank in PEFT's layout.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from fleet_merging.symmetry.derive import derive
from fleet_merging.symmetry.table import Symmetry

UNITS = 16
FEATURES, SEQUENCE, IMAGE = (6, 3), (6, 4, 3), (4, 3, 8, 8)
A, B = "base_model.model.0.lora_A.weight", "base_model.model.0.lora_B.weight"


def adapter(seed: int, rank: int = 2, inputs: int = 6, outputs: int = 5) -> dict[str, torch.Tensor]:
    """Returns an adapter of one layer, by the names `A` and `B`."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {A: (rank, inputs), B: (outputs, rank)}
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in shapes.items()
    }


def old_weight_norm(module: nn.Module) -> nn.Module:
    """Returns a module with a weight norm by hooks, of which PyTorch warns."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.weight_norm(module)


@dataclass(frozen=True, eq=False)
class ForeignNetwork:
    """A kind of network."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    free: int

    def build(self, seed: int = 0) -> nn.Module:
        """Returns a network in evaluation mode, after one pass in training mode."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self.make().train()
            with torch.compiler.set_stance("force_eager"):
                model(torch.randn(self.shape))
            for name, parameter in model.named_parameters():
                if parameter.dim() == 1 and not name.endswith("weight_g"):
                    nn.init.uniform_(parameter, 0.1, 0.5)  # no norm has equal entries
            return model.eval()

    @property
    def example(self) -> torch.Tensor:
        """Its argument."""
        return torch.randn(self.shape, generator=torch.Generator().manual_seed(1))

    @cache  # noqa: B019 (networks last as long as the module)
    def weights(self, seed: int = 0) -> dict[str, torch.Tensor]:
        """Returns the tensors of a network."""
        return {
            name: value.clone()
            for name, value in self.build(seed).state_dict().items()
            if isinstance(value, torch.Tensor)
        }


def mlp(wrap: Callable[[nn.Module], nn.Module] = lambda layer: layer) -> nn.Sequential:
    """Returns a network whose hidden layers are wrapped."""
    return nn.Sequential(
        wrap(nn.Linear(3, UNITS)), nn.Tanh(), wrap(nn.Linear(UNITS, UNITS)), nn.Tanh(),
        nn.Linear(UNITS, 2),
    )  # fmt: skip


def convolutions(wrap: Callable[[nn.Module], nn.Module]) -> nn.Sequential:
    """Returns a network whose convolutions are wrapped; the second one's matrix is ambiguous."""
    return nn.Sequential(
        wrap(nn.Conv2d(3, 8, 3)), nn.Tanh(), wrap(nn.ConvTranspose2d(8, 8, 2)), nn.Tanh(),
        nn.Flatten(), nn.Linear(8 * 7 * 7, 2),
    )  # fmt: skip


class Recurrent(nn.Module):
    """A recurrent layer whose weight of its own units has a norm."""

    def __init__(self) -> None:
        super().__init__()
        core = nn.LSTM(3, UNITS, batch_first=True)
        self.core = parametrizations.weight_norm(core, "weight_hh_l0")
        self.head = nn.Linear(UNITS, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.core(x)[0])


class Stepping(nn.Module):
    """A loop over the steps of a sequence with a single cell."""

    def __init__(self, cell: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.cell, self.head = cell(3, UNITS), nn.Linear(UNITS, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = None
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.head(state[0] if isinstance(state, tuple) else state)


class PaddedBlock(nn.Module):
    """A block of CIFAR's ResNets, whose shortcut pads channels with zeros (He et al. 2016)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.padding = (outputs - inputs) // 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        sides = (0, 0, 0, 0, self.padding, self.padding)
        return torch.relu(y + functional.pad(x[:, :, ::2, ::2], sides))


class Relative(nn.Module):
    """Attention over places with a learned bias by their differences, an index of integers."""

    differences: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(3, UNITS), nn.Linear(UNITS, 2)
        self.bias = nn.Parameter(torch.randn(7))
        places = torch.arange(4)
        self.register_buffer("differences", places[:, None] - places[None] + 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.bias[self.differences].softmax(-1) @ torch.tanh(self.into(x)))


class Tied(nn.Module):
    """Words that are read and written with the same vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.mix = nn.Linear(3, UNITS, bias=False), nn.Linear(UNITS, 3)
        self.write = nn.Linear(3, UNITS, bias=False)
        self.write.weight = self.read.weight
        self.head = nn.Linear(UNITS, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.write(self.mix(torch.tanh(self.read(x))))))


class Versioned(nn.Linear):
    """A layer with extra state, a tensor or plain data."""

    def __init__(self, inputs: int, outputs: int, extra: Any) -> None:
        super().__init__(inputs, outputs)
        self.extra = extra

    def get_extra_state(self) -> Any:
        return self.extra

    def set_extra_state(self, state: Any) -> None:
        self.extra = state


def _with_extra_state(extra: Any) -> nn.Sequential:
    return nn.Sequential(Versioned(3, UNITS, extra), nn.Tanh(), nn.Linear(UNITS, 2))


def _compiled() -> nn.Module:
    return cast(nn.Module, torch.compile(mlp(), backend="eager"))


def _normalized() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, UNITS, 3), nn.BatchNorm2d(UNITS), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(UNITS, 2),
    )  # fmt: skip


def _padded() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1), PaddedBlock(8, 16), PaddedBlock(16, 32),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2),
    )  # fmt: skip


ZOO = {
    "weight norm": ForeignNetwork(lambda: mlp(parametrizations.weight_norm), FEATURES, 2),
    "weight norm by hooks": ForeignNetwork(lambda: mlp(old_weight_norm), FEATURES, 2),
    "convolutions with weight norm": ForeignNetwork(
        lambda: convolutions(parametrizations.weight_norm), IMAGE, 2
    ),
    "recurrence with weight norm": ForeignNetwork(Recurrent, SEQUENCE, 1),
    "batch norm": ForeignNetwork(_normalized, IMAGE, 1),
    "padded shortcuts": ForeignNetwork(_padded, IMAGE, 7),
    "lstm cell": ForeignNetwork(lambda: Stepping(nn.LSTMCell), SEQUENCE, 1),
    "gru cell": ForeignNetwork(lambda: Stepping(nn.GRUCell), SEQUENCE, 1),
    "elman cell": ForeignNetwork(lambda: Stepping(nn.RNNCell), SEQUENCE, 1),
    "index of integers": ForeignNetwork(Relative, SEQUENCE, 1),
    "tied": ForeignNetwork(Tied, FEATURES, 1),
    "extra state": ForeignNetwork(lambda: _with_extra_state({"version": 2}), FEATURES, 1),
    "extra state, a tensor": ForeignNetwork(
        lambda: _with_extra_state(torch.tensor([7, 200], dtype=torch.uint8)), FEATURES, 1
    ),
    "compiled": ForeignNetwork(_compiled, FEATURES, 2),
}


@cache
def derived(kind: str) -> Symmetry:
    """Returns the table of a kind."""
    return derive(ZOO[kind].build(), ZOO[kind].example, draws=1)
