"""`check` accepts correct tables, and names the errors of others."""

import pytest

torch = pytest.importorskip("torch")

from support.architectures import ARCHITECTURES, numbers
from torch import nn

from fleet_tools.baselines.merging.errors import (
    AxisSyntaxError,
    NotInvariantError,
    UncoveredParameterError,
)
from fleet_tools.baselines.merging.symmetry.check import check
from fleet_tools.baselines.merging.symmetry.layers import linear, lstm, mlp, shared_mlp
from fleet_tools.baselines.merging.symmetry.table import Symmetry

MLP = mlp(["0", "2"], ["_obs", "h", "_act"])


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2))


@pytest.mark.parametrize("kind", ARCHITECTURES)
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


def test_wrong_numbers_of_axes_and_norms_are_refused():
    with pytest.raises(AxisSyntaxError, match=r"0, 2, have 3 axes, .* given are 2: _, h"):
        mlp(["0", "2"], ["_", "h"])
    with pytest.raises(AxisSyntaxError, match="2 norms follow 1 convolutions"):
        shared_mlp(["0"], ["_", "c"], norms=["1", "2"])
