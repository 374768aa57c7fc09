"""What is no weight in a state dict, and what is refused of a merged model."""

from typing import Any

import numpy as np
import pytest
import torch
from merging_support.foreign_networks import ZOO, Stepping, derived, mlp
from torch import nn
from torch.nn.utils import parametrizations

from fleet_merging import merge as merge_models
from fleet_merging.average import average
from fleet_merging.errors import (
    MergeError,
    ModelMismatchError,
    SymmetryWarning,
    UncoveredParameterError,
    UnsoundMergeError,
)
from fleet_merging.methods.registry import merge
from fleet_merging.modules import tensors_of
from fleet_merging.problem import MergeProblem
from fleet_merging.symmetry.derive import derive
from fleet_merging.symmetry.table import Symmetry

LIARS = """
import torch
from dataclasses import replace
from fleet_merging.methods.rebasin import naive_average

def _with(change):
    def method(problem):
        result = naive_average(problem)
        return replace(result, members=(change(result.state),))
    return method

missing = _with(lambda state: {k: v for k, v in state.items() if k != "w"})
unknown = _with(lambda state: state | {"more": torch.ones(1)})
shape = _with(lambda state: state | {"w": torch.ones(3)})
dtype = _with(lambda state: state | {"w": state["w"].double()})
infinite = _with(lambda state: state | {"w": state["w"] / 0})
negative = _with(lambda state: state | {"norm.running_var": -state["norm.running_var"]})
number = _with(lambda state: state | {"w": 1.0})
plain = lambda problem: naive_average(problem).state
"""


def fixed_problem(*models, **fields):
    table = {name: " ".join("_" * value.dim()) for name, value in models[0].items()}
    return MergeProblem(Symmetry.of(table), models, **fields)


@pytest.mark.parametrize(
    ("liar", "message"),
    [
        ("missing", "w is missing"),
        ("unknown", "more does not belong to it"),
        ("shape", r"w is float32 \(3,\), not float32 \(2,\)"),
        ("dtype", r"w is float64 \(2,\), not float32"),
        ("infinite", "w holds NaN or infinity"),
        ("negative", r"norm\.running_var holds variances below 0"),
        ("number", "w is a float"),
        ("plain", "returned a dict.*MergeResult"),
    ],
)
def test_a_method_that_returns_no_model_is_named_with_the_tensor(
    liar, message, tmp_path, monkeypatch
):
    (tmp_path / "liars.py").write_text(LIARS)
    monkeypatch.syspath_prepend(str(tmp_path))
    model = {"w": torch.tensor([1.0, 2.0]), "norm.running_var": torch.ones(2)}
    with pytest.raises(UnsoundMergeError, match=f"liars:{liar} .*{message}"):
        merge(f"liars:{liar}", fixed_problem(model, model))


@pytest.mark.parametrize(
    "build",
    [
        parametrizations.spectral_norm,
        nn.utils.spectral_norm,
        lambda layer: parametrizations.spectral_norm(parametrizations.weight_norm(layer)),
        parametrizations.orthogonal,
    ],
)
def test_buffers_that_belong_to_one_weight_are_refused_before_anything_is_merged(build):
    models = [nn.Sequential(build(nn.Linear(4, 4)), nn.Linear(4, 2)) for _ in range(2)]
    with pytest.raises(MergeError, match="remove_parametrizations"):
        fixed_problem(*(tensors_of(each) for each in models))
    with pytest.raises(MergeError, match="remove_parametrizations"):
        merge_models("git_rebasin", models, example=torch.randn(6, 4))


@pytest.mark.parametrize("method", ["task_arithmetic", "ties", "dare"])
def test_statistics_are_averaged_where_weights_leave_the_convex_hull(method):
    base, *models = (
        {"norm.weight": weight, "norm.running_mean": weight - 1, "norm.running_var": variance}
        for weight, variance in (
            (torch.ones(40), torch.ones(40)),
            (torch.full((40,), 2.0), torch.full((40,), 0.02)),
            (torch.full((40,), 4.0), torch.full((40,), 0.04)),
        )
    )
    merged = merge(method, fixed_problem(*models, base=base), scale=2.0).state
    torch.testing.assert_close(merged["norm.running_var"], torch.full((40,), 0.03))
    torch.testing.assert_close(merged["norm.running_mean"], torch.full((40,), 2.0))
    assert (merged["norm.weight"] > 4).any()


def test_indices_and_extra_state_agree_and_counts_are_averaged():
    one = {
        "count": torch.tensor(3), "index": torch.arange(4), "mask": torch.tensor([True, False]),
        "norm._extra_state": torch.tensor([0.1, 0.2]), "w": torch.zeros(2),
    }  # fmt: skip
    other = one | {"count": torch.tensor(6), "w": torch.ones(2)}
    merged = average([one, other], [1, 2])
    assert int(merged["count"]) == 5
    for name in ("index", "mask", "norm._extra_state"):
        assert torch.equal(merged[name], one[name])
        with pytest.raises(ModelMismatchError, match=f"{name} .*differs between models"):
            average([one, other | {name: one[name].flip(0)}])


def test_a_permuted_mask_is_that_of_the_permuted_models():
    model = {"w": torch.arange(1.0, 5.0), "mask": torch.tensor([True, False, False, True])}
    symmetry = Symmetry.of({"w": "h", "mask": "h"})
    reversal = {"h": np.array([3, 1, 2, 0])}
    model["mask"][3] = False
    merged = MergeProblem(symmetry, [model, model]).mean([reversal, reversal])
    assert torch.equal(merged["mask"], torch.tensor([False, False, False, True]))


def test_extra_state_that_is_no_tensor_is_refused_by_name():
    state = ZOO["extra state"].build().state_dict()
    with pytest.raises(UncoveredParameterError, match=r"0\._extra_state holds a dict.*Remove it"):
        merge("naive_average", fixed_problem_of(state))


def fixed_problem_of(state):
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    table = {name: " ".join("_" * value.dim()) for name, value in tensors.items()}
    return MergeProblem(Symmetry.of(table), [state, state])


class Between(nn.Module):
    """An operation between two layers."""

    def __init__(self, operation):
        super().__init__()
        self.into, self.out, self.operation = nn.Linear(3, 6), nn.Linear(6, 2), operation

    def forward(self, x):
        return self.out(self.operation(self.into(x)))


def test_a_derivation_says_where_it_knows_no_rule_and_when_it_finds_nothing():
    nothing = pytest.warns(SymmetryWarning, match="fixes every axis of all 4 parameters")
    with nothing, pytest.warns(SymmetryWarning, match=r"aten\.renorm \(into, out\)"):
        derive(Between(lambda x: torch.relu(x).renorm(2, 0, 1.0)), torch.randn(4, 3), draws=1)
    with pytest.warns(SymmetryWarning, match="fixes every axis of all 4 parameters"):
        derive(Between(lambda x: x.cumsum(-1).tanh()), torch.randn(4, 3), draws=1)
    derive(nn.Linear(3, 2), torch.randn(4, 3), draws=1)  # without hidden units, nothing to say


def test_a_compiled_model_is_derived_without_a_word(capfd):
    model: Any = torch.compile(mlp(), backend="eager")
    table = derive(model, ZOO["compiled"].example, draws=1).table()
    assert table["_orig_mod.2.bias"] == "layerorig_mod.2"
    assert capfd.readouterr() == ("", "")


def test_units_of_padded_shortcuts_stay_where_they_were_padded():
    table = derived("padded shortcuts").table()
    assert table["1.bn2.weight"] == "(layer1.conv2:4 | layer0:8 | layer1.conv2_2:4)"


def test_single_cells_have_the_table_of_their_layers():
    table = derive(Stepping(nn.LSTMCell), torch.randn(2, 3, 3), draws=1).table()
    assert table["cell.weight_ih"] == "(_:4 cell:16) _"
    assert table["cell.weight_hh"] == "(_:4 cell:16) cell"
    assert table["head.weight"] == "_ cell"
