"""`check` accepts correct tables, and names the errors of others."""

import pytest
import torch
from merging_support.architectures import ARCHITECTURES, numbers
from torch import nn

from fleet_merging.errors import (
    AxisSyntaxError,
    NotInvariantError,
    SymmetryWarning,
    UncoveredParameterError,
)
from fleet_merging.symmetry.check import check
from fleet_merging.symmetry.layers import (
    batch_norm,
    embedding,
    linear,
    lstm,
    mlp,
)
from fleet_merging.symmetry.table import Symmetry

MLP = mlp(["0", "2"], ["_obs", "h", "_act"])


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2))


# Any activation acts on each unit by itself; `test_symmetry` holds that of each.
@pytest.mark.parametrize(
    "kind", [k for k in ARCHITECTURES if not k.startswith("mlp ") or k == "mlp ReLU"]
)
def test_correct_tables_pass_and_the_model_is_not_changed(kind):
    architecture = ARCHITECTURES[kind]
    model = architecture.make().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    check(architecture.symmetry, model, architecture.example(), draws=1)
    assert model.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def freed(axes):
    """Yields tables in each of which one fixed axis is free, under a new name."""
    for name, text in axes.items():
        words = text.split()
        for index, word in enumerate(words):
            if word.startswith("_"):
                yield {**axes, name: " ".join([*words[:index], "wrong", *words[index + 1 :]])}


@pytest.mark.parametrize("table", list(freed(MLP)))
def test_a_fixed_axis_that_the_table_calls_free_is_named(table):
    with pytest.raises(NotInvariantError, match="wrong changes them by"):
        check(table, network(), numbers(4, 3))


@pytest.mark.parametrize("kind", ["conv and batch norm", "lstm", "attention", "pointnet"])
def test_a_free_axis_that_the_table_calls_fixed_is_found(kind):
    """A new model's equal weights and statistics hide no error."""
    architecture = ARCHITECTURES[kind]
    model, table = architecture.make(), architecture.symmetry.table()
    for name, text in table.items():
        if all(word.startswith("_") for word in text.split()):
            continue
        mutant = {key: axes.replace("v@head", "v@head:4") for key, axes in table.items()}
        mutant |= {name: " ".join("_" * model.state_dict()[name].dim())}
        with pytest.raises(NotInvariantError, match="changes them by"):
            check(mutant, model, architecture.example(), draws=1)


def test_channels_may_not_leave_their_group():
    model = nn.Sequential(nn.Conv2d(2, 6, 3), nn.GroupNorm(3, 6), nn.Flatten(), nn.Linear(96, 3))
    table = {"0.weight": "c _ _ _", "0.bias": "c", "1.weight": "c", "1.bias": "c"}
    with pytest.raises(NotInvariantError, match=r"c changes them by .*1\.weight 'c'"):
        check(table | linear("3", "c _", "_"), model, numbers(2, 2, 6, 6))


def test_missing_parameters_are_named_with_their_layers():
    model = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    with pytest.raises(UncoveredParameterError, match=r"1\.running_mean .*1 is a BatchNorm1d"):
        check(mlp(["0", "2"], ["_", "h", "_"]), model, numbers(4, 3))
    with pytest.raises(UncoveredParameterError, match=r"table has gone\.weight"):
        check(MLP | {"gone.weight": "_"}, network(), numbers(4, 3))


def test_a_hidden_state_is_permuted_so_outputs_are_selected():
    symmetry = Symmetry.of(lstm("core", "_", ["h"]), linear("head", "h", "_"))

    class WithState(nn.Module):
        def __init__(self):
            super().__init__()
            self.core, self.head = nn.LSTM(3, 5, batch_first=True), nn.Linear(5, 2)

        def forward(self, observations):
            hidden, state = self.core(observations)
            return self.head(hidden), state

    model = WithState()
    with pytest.raises(NotInvariantError, match="h changes"):
        check(symmetry, model, numbers(2, 4, 3))
    check(symmetry, model, numbers(2, 4, 3), output=lambda outputs: outputs[0])


def test_examples_that_prove_nothing_are_refused():
    with pytest.raises(NotInvariantError, match="hardly depend on the units of 'h'"):
        check(MLP, nn.Sequential(*network(), nn.Threshold(1e9, 0.0)), numbers(4, 3))
    with pytest.raises(NotInvariantError, match="not finite"):
        check(MLP, network(), numbers(4, 3) / 0)
    with pytest.raises(NotInvariantError, match="no tensor"):
        check(MLP, network(), numbers(4, 3), output=lambda outputs: None)

    class Noisy(nn.Sequential):
        def forward(self, input):
            return super().forward(input) + torch.randn(())

    with pytest.raises(NotInvariantError, match="differ between two calls"):
        check(MLP, Noisy(*network()), numbers(4, 3))


def test_a_model_with_its_own_precision_is_checked_in_it():
    class Single(nn.Sequential):
        def forward(self, input):
            return super().forward(input.float())

    check(MLP, Single(*network()), numbers(4, 3))


def test_wrong_numbers_of_axes_are_refused():
    with pytest.raises(AxisSyntaxError, match=r"0, 2, have 3 axes, .* given: 2: _, h"):
        mlp(["0", "2"], ["_", "h"])


def deep_convolutions(blocks: int, width: int) -> tuple[nn.Sequential, dict[str, str]]:
    """Returns an untrained network of depthwise convolutions as in MobileNetV2, and its table.

    The initial weights are those of MobileNetV2, with which activations vanish: a depthwise
    convolution has outputs smaller by the square root of the number of channels.
    """
    layers: list[nn.Module] = []
    table: dict[str, str] = {}

    def add(layer: nn.Module, entries: dict[str, str]) -> None:
        table.update({f"{len(layers)}.{name}": axes for name, axes in entries.items()})
        layers.append(layer)

    def convolution(into: str, out: str, inputs: int, size: int, groups: int = 1) -> None:
        layer = nn.Conv2d(inputs, width, size, padding=size // 2, groups=groups, bias=False)
        nn.init.kaiming_normal_(layer.weight, mode="fan_out")
        add(layer, {"weight": f"{out} {into} _ _"})
        norm = batch_norm("norm", out)
        add(nn.BatchNorm2d(width), {key.removeprefix("norm."): axes for key, axes in norm.items()})

    convolution("_rgb", "c0", 3, 3)
    for block in range(blocks):
        convolution(f"c{block}", f"h{block}", width, 1)
        layers.append(nn.ReLU6())
        convolution("_", f"h{block}", width, 3, groups=width)
        layers.append(nn.ReLU6())
        convolution(f"h{block}", f"c{block + 1}", width, 1)
    layers.extend((nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    head = nn.Linear(width, 4)
    nn.init.normal_(head.weight, 0.0, 0.01)
    add(head, {"weight": f"_ c{blocks}", "bias": "_"})
    return nn.Sequential(*layers), table


@pytest.mark.parametrize("blocks", [1, 8])
def test_of_untrained_deep_networks_correct_tables_pass_and_false_ones_do_not(blocks):
    torch.manual_seed(0)
    model, table = deep_convolutions(blocks, 48)
    example = numbers(2, 3, 6, 6)
    report = check(table, model, example, draws=1)
    assert len(report.sizes) == 2 * blocks + 1 and report.unused == ()
    for name in ("1.running_var", "5.weight"):  # early ones
        with pytest.raises(NotInvariantError, match="changes them by"):
            check(table | {name: " ".join("_" * len(table[name].split()))}, model, example, draws=1)


def test_deep_networks_whose_layers_are_no_modules_are_checked_too():
    """Their activations cannot be scaled; what counts is that a true table changes nothing."""

    class Raw(nn.Module):
        def __init__(self):
            super().__init__()
            shapes = [(8, 3), *[(8, 8)] * 6, (2, 8)]
            generator = torch.Generator().manual_seed(0)
            self.weights = nn.ParameterList(
                0.1 * torch.randn(shape, generator=generator) for shape in shapes
            )

        def forward(self, x):
            for weight in list(self.weights)[:-1]:
                x = torch.tanh(x @ weight.T)
            return x @ self.weights[-1].T

    names = ["_obs", *(f"h{layer}" for layer in range(7)), "_act"]
    table = {f"weights.{i}": f"{names[i + 1]} {names[i]}" for i in range(8)}
    model, example = Raw(), numbers(4, 3)
    assert model(example.float()).detach().abs().max() < 1e-4
    check(table, model, example)
    with pytest.raises(NotInvariantError):
        check(table | {"weights.1": "h1 _"}, model, example)


class Branches(nn.Module):
    """Two networks, of which the second is used for large inputs only, and one never called."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 6), nn.Linear(6, 2)
        self.c, self.d = nn.Linear(3, 6), nn.Linear(6, 2)
        self.never = nn.Linear(2, 2)

    def forward(self, x):
        if x.sum() > 1e3:
            return self.d(torch.tanh(self.c(x)))
        return self.b(torch.tanh(self.a(x)))


def test_what_the_example_does_not_reach_is_said():
    first = linear("a", "_", "h") | linear("b", "h", "_")
    second = linear("c", "_", "_") | linear("d", "_", "_")  # true, but so would others be
    table = first | second | linear("never", "_", "_")
    with pytest.warns(SymmetryWarning, match=r"6 of 10 parameters do not .*: c\.weight, c\.bias"):
        report = check(table, Branches(), numbers(4, 3))
    assert report.unused == tuple(name for name in table if name[0] not in "ab")
    assert report.fixed == ("b.bias", *report.unused)
    assert dict(report.sizes) == {"h": (6,)}
    free = table | linear("c", "_", "g") | linear("d", "_", "_")
    with pytest.raises(NotInvariantError, match="hardly depend on the units of 'g'"):
        check(free, Branches(), numbers(4, 3))


def test_a_table_that_fixes_everything_is_true_and_says_nothing():
    with pytest.warns(SymmetryWarning, match="fixes every axis of all 4 parameters"):
        report = check(mlp(["0", "2"], ["_", "_", "_"]), network(), numbers(4, 3))
    assert not report.sizes and len(report.fixed) == 4
    assert str(check(MLP, network(), numbers(4, 3))) == (
        "1 permutations; 1 of 4 parameters have no free axis, 0 no effect on the outputs"
    )


class Tied(nn.Module):
    """Embedded words, a hidden layer, and scores of words by the same weights."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.scores = nn.Embedding(7, 6), nn.Linear(6, 7, bias=False)
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)
        self.scores.weight = self.words.weight

    def forward(self, words):
        x = self.words(words)
        return self.scores(x + self.down(torch.relu(self.up(x))))


def test_tied_weights_have_the_same_axes():
    words = torch.arange(7)
    hidden = linear("up", "res", "h") | linear("down", "h", "res")
    table = embedding("words", "res") | hidden | {"scores.weight": "_words res"}
    check({**table, "words.weight": "_words res"}, Tied(), words)
    for other in ("_words _", "_words other"):
        with pytest.raises(NotInvariantError, match="tied weights"):
            check({**table, "scores.weight": other}, Tied(), words)
    false = {name: axes.replace("res", "_") for name, axes in table.items()}
    false |= {"up.weight": "h res", "words.weight": "_words _", "scores.weight": "_words _"}
    with pytest.raises(NotInvariantError, match="res changes them by"):
        check(false, Tied(), words)
