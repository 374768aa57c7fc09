"""Laws of the methods that ask data holders for moments."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from merging_support.architectures import numbers
from merging_support.problems import WIDE, make_data_holder, make_problem
from torch import nn

from fleet_merging.average import average
from fleet_merging.errors import MergeError
from fleet_merging.methods.registry import merge
from fleet_merging.methods.regression import (
    head_refit,
    least_squares,
    regmean,
)
from fleet_merging.moments.affine_maps import affine_maps
from fleet_merging.moments.measurement import LabelledBatch
from fleet_merging.moments.rows import applied_maps
from fleet_merging.problem import MergeProblem
from fleet_merging.queries.data_holder import LocalDataHolder
from fleet_merging.symmetry.layers import linear
from fleet_merging.symmetry.table import Symmetry

METHODS = ("regmean", "least_squares", "head_refit")


def problem_of(kind, states, inputs=None, labels=None, **fields):
    """Returns the problem of merging models, each with its own data and, if None, own outputs."""
    architecture = WIDE[kind]
    model = architecture.build()
    inputs = inputs or [architecture.example()] * len(states)
    holders = []
    for index, (state, given) in enumerate(zip(states, inputs, strict=True)):
        outputs = torch.func.functional_call(model, state, (given,)).detach()
        targets = outputs if labels is None else labels[index]
        holders.append(make_data_holder(architecture, targets, given))
    return make_problem(architecture, states, holders, **fields)


def different(kind, count, **fields):
    """Returns the problem of merging unrelated models with data of their own."""
    states = [WIDE[kind].build(seed).state_dict() for seed in range(count)]
    shape = WIDE[kind].example().shape
    return problem_of(kind, states, [numbers(*shape) * (1 + s) for s in range(count)], **fields)


def outputs(kind, state):
    return WIDE[kind].outputs(WIDE[kind].build(), state)


def assert_same(one, other, tolerance=1e-6):
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("method", METHODS)
def test_one_model_is_merged_to_itself(kind, method):
    problem = different(kind, 1)
    merged = merge(method, problem)
    # Messages are in single precision.
    torch.testing.assert_close(
        outputs(kind, merged.state), outputs(kind, problem.models[0]), rtol=1e-4, atol=1e-5
    )
    if method.startswith("regmean"):
        assert_same(merged.state, problem.models[0])


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("method", [*METHODS, "git_rebasin"])
def test_permuted_copies_are_merged_to_their_function(kind, method):
    """Alignment by activations finds each copy's permutation, with data of its own."""
    architecture = WIDE[kind]
    state = architecture.build().state_dict()
    group = architecture.symmetry.group(state)
    generator = np.random.default_rng(0)
    states = [architecture.symmetry.apply(group.random(generator), state) for _ in range(3)]
    shape = architecture.example().shape
    problem = problem_of(kind, states, [numbers(*shape) + s for s in range(3)])
    merged = merge(method, problem, alignment="activations")
    torch.testing.assert_close(
        outputs(kind, merged.state), outputs(kind, state), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("alignment", ["none", "activations"])
def test_the_order_of_robots_and_their_copies_do_not_matter(method, alignment):
    problem = different("mlp", 3, averaging_weights=[1, 2, 4])
    expected = merge(method, problem, alignment=alignment).state
    order = [2, 0, 1]

    def chosen(values):
        return [values[index] for index in order]

    shuffled = replace(
        problem,
        models=chosen(problem.models),
        data_holders=chosen(problem.data_holders),
        averaging_weights=chosen([1, 2, 4]),
    )
    assert_same(merge(method, shuffled, alignment=alignment).state, expected)
    if alignment == "none":
        twice = replace(
            problem,
            models=[*problem.models] * 2,
            data_holders=[*problem.data_holders] * 2,
            averaging_weights=[1, 2, 4] * 2,
        )
        assert_same(merge(method, twice).state, expected)


@pytest.mark.parametrize("method", METHODS)
def test_a_model_of_twice_the_weight_counts_as_two_copies(method):
    problem = different("mlp", 2, averaging_weights=[2, 1])
    copies = replace(
        problem,
        models=[problem.models[0], *problem.models],
        data_holders=[problem.data_holders[0], *problem.data_holders],
        averaging_weights=[1, 1, 1],
    )
    assert_same(merge(method, problem).state, merge(method, copies).state)


def test_regmean_of_linear_models_is_least_squares_on_the_pooled_rows():
    """Independently: numpy's least squares on all rows, towards what each model says of its own."""
    generator = np.random.default_rng(0)
    model = nn.Linear(4, 2).double()
    states, holders, rows, targets = [], [], [], []
    for _ in range(3):
        x = generator.normal(size=(25, 4))
        weight, bias = generator.normal(size=(2, 4)), generator.normal(size=2)
        states.append({"weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)})
        batch = LabelledBatch((torch.from_numpy(x),))
        holders.append(
            LocalDataHolder(model, lambda policy, seed: torch.zeros(()), lambda b=batch: [b])
        )
        rows.append(np.pad(x, ((0, 0), (0, 1)), constant_values=1.0))
        targets.append(x @ weight.T + bias)
    maps = tuple(affine_maps(model).values())
    symmetry = Symmetry.of({"weight": "_out _in", "bias": "_out"})
    problem = MergeProblem(symmetry, states, data_holders=holders, affine_maps=maps)
    merged = regmean(problem, ridge=1e-9).state
    expected = np.linalg.lstsq(np.vstack(rows), np.vstack(targets))[0]
    np.testing.assert_allclose(merged["weight"].numpy(), expected[:-1].T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(merged["bias"].numpy(), expected[-1], rtol=1e-4, atol=1e-5)


def test_of_models_with_equal_inputs_regmean_averages_the_first_layer():
    states = [WIDE["mlp"].build(seed).state_dict() for seed in range(3)]
    problem = problem_of("mlp", states)
    merged, mean = regmean(problem).state, average(states)
    assert_same({name: merged[name] for name in ("0.weight", "0.bias")}, mean, 1e-4)


def test_refitting_a_network_of_one_layer_is_pooled_least_squares():
    """The control of a linear policy: it needs no gradient, and no robot's training."""
    generator = np.random.default_rng(0)
    model = nn.Sequential(nn.Linear(4, 2)).double()
    holders, rows, targets = [], [], []
    for _ in range(3):
        x, t = generator.normal(size=(30, 4)), generator.normal(size=(30, 2))
        batch = LabelledBatch((torch.from_numpy(x),), torch.from_numpy(t))
        holders.append(
            LocalDataHolder(model, lambda policy, seed: torch.zeros(()), lambda b=batch: [b])
        )
        rows.append(np.pad(x, ((0, 0), (0, 1)), constant_values=1.0))
        targets.append(t)
    problem = MergeProblem(
        Symmetry.of(linear("0", "_in", "_out")),
        [model.state_dict()] * 3,
        data_holders=holders,
        affine_maps=tuple(affine_maps(model).values()),
    )
    merged = head_refit(problem, ridge=1e-9).state
    expected = np.linalg.lstsq(np.vstack(rows), np.vstack(targets))[0]
    np.testing.assert_allclose(merged["0.weight"].numpy(), expected[:-1].T, rtol=1e-4, atol=1e-5)


def test_refits_lower_the_loss_on_the_pooled_labels():
    labels = [torch.full((40, 2), float(i)).double() for i in range(3)]
    states = [WIDE["mlp"].build(seed).state_dict() for seed in range(3)]
    inputs = [WIDE["mlp"].example() + s for s in range(3)]
    problem = problem_of("mlp", states, inputs, labels)

    def loss(state):
        pairs = zip(inputs, labels, strict=True)
        return sum((outputs_at(state, x) - t).square().mean() for x, t in pairs)

    assert loss(head_refit(problem).state) < loss(average(states))
    fitted = least_squares(problem)
    assert loss(fitted.state) < loss(regmean(problem).state)
    assert fitted.traffic.calls == 3 * len(problem.affine_maps)


def outputs_at(state, x):
    return torch.func.functional_call(WIDE["mlp"].build(), state, (x,))


BAD = {
    "alignment": ({"alignment": "magic"}, {}, "alignment is 'magic'"),
    "holders": ({}, {"data_holders": ()}, "no data holders"),
    "maps": ({}, {"affine_maps": ()}, "no affine maps"),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", BAD)
def test_what_is_missing_is_said(method, case):
    options, fields, words = BAD[case]
    with pytest.raises(MergeError, match=words):
        merge(method, replace(different("mlp", 2), **fields), **options)


def test_a_refit_is_of_the_average_or_the_base():
    with pytest.raises(MergeError, match="known are average, base"):
        head_refit(different("mlp", 2), of="nothing")


@pytest.mark.parametrize("method", ["regmean", "least_squares", "head_refit"])
def test_moments_too_large_for_memory_are_refused_unless_nobody_asks_for_them(method):
    """The first layer reads 12,000 numbers, whose moments have 1.15 GB; the last one reads 2."""

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(12_000, 2), nn.ReLU(), nn.Linear(2, 1))

    x, y = torch.ones(4, 12_000), torch.ones(4, 1)
    batches = [LabelledBatch((x,), y)]
    holder = LocalDataHolder(make(), lambda policy, seed: policy(x).sum(), lambda: batches)
    symmetry = Symmetry.of(linear("0", "_", "h"), linear("2", "h", "_"))
    models = [make().state_dict() for _ in range(2)]
    maps = applied_maps(make(), x)
    problem = MergeProblem(symmetry, models, data_holders=[holder] * 2, affine_maps=maps)
    if method == "head_refit":
        merge(method, problem)
    with pytest.raises(MergeError, match=r"map '0' need 1\.2 GB"):
        merge(method, problem, alignment="activations")
