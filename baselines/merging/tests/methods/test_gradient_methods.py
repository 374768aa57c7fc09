"""Fisher merging, against posteriors that are known; FedSGD, which is descent on pooled data."""

import inspect

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("safetensors")

from merging_support.problems import WIDE, make_data_holder, make_problem
from merging_support.vector_models import gaussian, holder, vectors

from fleet_merging.errors import MergeError
from fleet_merging.matching.soft_descent import Descent
from fleet_merging.methods.fleet_merge import fleet_merge
from fleet_merging.methods.gradient_methods import fed_sgd, fisher
from fleet_merging.problem import MergeProblem
from fleet_merging.queries.data_holder import LocalDataHolder
from fleet_merging.symmetry.table import Symmetry


@settings(max_examples=15)
@given(st.integers(0, 999), st.integers(1, 4))
def test_fisher_finds_the_mode_of_the_product_of_gaussian_posteriors(seed, count):
    """Solved as linear least squares, which knows nothing of Fisher information."""
    generator = np.random.default_rng(seed)
    means, precisions = generator.normal(size=(count, 3)), generator.uniform(0.1, 9, (count, 3))
    weights = generator.integers(1, 5, count)
    holders = [gaussian(*each) for each in zip(means, precisions, strict=True)]
    merged = fisher(vectors(list(means), holders, weights), samples=3)
    roots = np.sqrt(weights[:, None] * precisions)
    rows = np.concatenate([np.diag(root) for root in roots])
    mode = np.linalg.lstsq(rows, (roots * means).ravel(), rcond=None)[0]
    np.testing.assert_allclose(merged.state["x"], mode, rtol=1e-9)


def test_a_constant_factor_of_all_losses_does_not_matter():
    means, precisions = [[0.0, 1.0], [4.0, 3.0]], np.array([[1.0, 2.0], [3.0, 1.0]])
    one, other = (
        fisher(vectors(means, [gaussian(m, c * p) for m, p in zip(means, precisions, strict=True)]))
        for c in (1.0, 1e-8)
    )
    torch.testing.assert_close(one.state, other.state)


def test_drawn_batches_approach_the_fisher_of_single_samples_over_their_size():
    """At the mean of normal data, squares of a batch's gradients are precision / size."""
    means, precisions, sizes = np.array([[0.0], [1.0]]), (1.0, 4.0), (8, 2)

    def drawing(mean, precision, size):
        def loss(x, seed):
            data = np.random.default_rng(seed).normal(mean, precision**-0.5, (size, 1))
            return precision * (x - torch.tensor(data)).square().mean() / 2

        return holder(1, loss)

    holders = [drawing(*each) for each in zip(means, precisions, sizes, strict=True)]
    merged = float(fisher(vectors(list(means), holders), samples=400).state["x"])
    shares = [precision / size for precision, size in zip(precisions, sizes, strict=True)]
    assert abs(merged - shares[1] / sum(shares)) < 0.04


def test_parameters_on_which_no_loss_depends_are_averaged():
    def loss(x, seed):
        return (x[0] - seed % 7).square()

    merged = fisher(vectors([[1.0, 1.0], [2.0, 4.0]], [holder(2, loss)] * 2, [1, 2]))
    np.testing.assert_allclose(merged.state["x"][1], 3.0)
    still = [holder(2, lambda x, seed: 0 * x.sum())] * 2
    np.testing.assert_allclose(fisher(vectors([[1.0, 1.0], [2.0, 4.0]], still)).state["x"],
                               [1.5, 2.5])  # fmt: skip


def test_equal_fishers_average():
    means = np.random.default_rng(0).normal(size=(3, 4))
    holders = [gaussian(mean, [1.0, 2.0, 3.0, 4.0]) for mean in means]
    merged = fisher(vectors(list(means), holders, [1, 2, 3]))
    np.testing.assert_allclose(merged.state["x"], np.average(means, axis=0, weights=[1, 2, 3]))


@pytest.mark.parametrize("kind", ["mlp", "gru", "conv"])
def test_aligned_copies_merge_into_their_function(kind):
    """And each is asked about itself as permuted: otherwise units would have others' weights."""
    architecture = WIDE[kind]
    model = architecture.build()
    state = model.state_dict()
    group, generator = architecture.symmetry.group(state), np.random.default_rng(0)
    models = [architecture.symmetry.apply(group.random(generator), state) for _ in range(3)]
    targets = architecture.outputs(model)
    holders = [make_data_holder(architecture, targets + shift) for shift in (1.0, 2.0, 3.0)]
    problem = MergeProblem(architecture.symmetry, models, data_holders=holders)
    merged = fisher(problem, samples=4, align="weights")
    torch.testing.assert_close(architecture.outputs(model, merged.state), targets)
    apart = fisher(problem, samples=4)
    assert not torch.allclose(architecture.outputs(model, apart.state), targets, atol=0.1)
    for aligned in problem.permuted(merged.permutations):
        torch.testing.assert_close(aligned, merged.state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "0 samples"),
        ({"align": "activations"}, "known are none, weights"),
    ],
)
def test_invalid_options_of_fisher_are_explained(options, message):
    with pytest.raises(MergeError, match=message):
        fisher(vectors([[1.0]], [gaussian([1.0], [1.0])]), **options)


def regression(inputs, outputs, batch=None):
    """Returns a data holder of rows of a linear regression; it draws some of them, or all."""
    rows, targets = torch.tensor(inputs), torch.tensor(outputs)

    def loss(x, seed):
        chosen = slice(None)
        if batch and seed is not None:
            chosen = np.random.default_rng(seed).permutation(len(rows))[:batch]
        return (rows[chosen] @ x - targets[chosen]).square().mean()

    return holder(rows.shape[1], loss)


def split_regression(seed, batch=None):
    """Returns a problem with a regression split in unequal parts, and the pooled solution."""
    generator = np.random.default_rng(seed)
    inputs, sizes = generator.normal(size=(60, 3)), [10, 20, 30]
    outputs = inputs @ generator.normal(size=3) + 0.3 * generator.normal(size=60)
    parts = [np.split(each, np.cumsum(sizes)[:-1]) for each in (inputs, outputs)]
    models = [
        np.linalg.lstsq(rows, targets, rcond=None)[0] for rows, targets in zip(*parts, strict=True)
    ]
    holders = [regression(rows, targets, batch) for rows, targets in zip(*parts, strict=True)]
    problem = vectors(models, holders, sizes, seed=seed)
    return problem, np.linalg.lstsq(inputs, outputs, rcond=None)[0]


@pytest.mark.parametrize("seed", [0, 1])
def test_fed_sgd_solves_the_pooled_least_squares(seed):
    problem, solution = split_regression(seed)
    merged = fed_sgd(problem, steps=150, rate=0.1)
    np.testing.assert_allclose(merged.state["x"], solution, atol=1e-4)


def test_on_drawn_batches_it_comes_close():
    problem, solution = split_regression(0, batch=5)
    far = vectors([[3.0, 3.0, 3.0]] * 3, problem.data_holders, problem.averaging_weights)
    merged = fed_sgd(far, steps=100, rate=0.3)
    np.testing.assert_allclose(merged.state["x"], solution, atol=0.1)


def test_holders_count_by_their_averaging_weights():
    def towards(target):
        return holder(1, lambda x, seed: (x - target).square().sum())

    problem = vectors([[0.0], [0.0], [9.0]], [towards(1.0), towards(4.0), towards(99.0)], [2, 1, 0])
    merged = fed_sgd(problem, steps=100, rate=0.2)
    np.testing.assert_allclose(merged.state["x"], 2.0, atol=0.05)
    assert merged.traffic.calls == 2 * 100


@pytest.mark.parametrize("participants", [None, 1, 2])
def test_its_traffic_is_that_of_fleet_merge(participants):
    models = [WIDE["mlp"].build(seed).state_dict() for seed in range(3)]
    holders = [make_data_holder(WIDE["mlp"], torch.full((40, 2), float(i))) for i in range(3)]
    problem = MergeProblem(WIDE["mlp"].symmetry, models, data_holders=holders)
    control = fed_sgd(problem, steps=6, participants=participants)
    descent = Descent(steps=3)
    method = fleet_merge(problem, epochs=2, descent=descent, participants=participants)
    assert control.traffic == method.traffic
    assert control.traffic.calls == 6 * (participants or 3)


def test_its_default_traffic_is_that_of_fleet_merge_by_default():
    """From the signatures: 300 gradients of each robot would take long."""
    defaults = [inspect.signature(each).parameters for each in (fed_sgd, fleet_merge)]
    assert defaults[0]["steps"].default == defaults[1]["epochs"].default * Descent().steps


def test_all_take_part_about_equally_often():
    asked = []

    def recording(number):
        def loss(x, seed):
            asked.append(number)
            return x.sum()

        return holder(1, loss)

    problem = vectors([[0.0], [1.0], [2.0]], [recording(i) for i in range(3)])
    fed_sgd(problem, steps=300, participants=1)
    assert np.abs(np.bincount(asked) - 100).max() < 33  # four standard deviations


def test_small_steps_are_not_lost_in_half_precision():
    """A step of 1e-4 is less than half of a rounding error at 1 in bfloat16."""
    module = torch.nn.Linear(1, 1, bias=False, dtype=torch.bfloat16)
    state = {"weight": torch.ones(1, 1, dtype=torch.bfloat16)}
    one = torch.ones(1, 1, dtype=torch.bfloat16)
    local = LocalDataHolder(module, lambda policy, seed: policy(one).square().sum())
    problem = MergeProblem(Symmetry.of({"weight": "_ _"}), [state], data_holders=[local])
    merged = fed_sgd(problem, steps=200, rate=2e-4)
    assert merged.state["weight"].dtype == torch.bfloat16
    assert abs(float(merged.state["weight"]) - 0.98) < 0.005


@pytest.mark.parametrize("start", ["average", "structured_compression"])
def test_fed_sgd_changes_no_model_that_it_begins_with(start):
    """Of a recurrent layer, `structured_compression` keeps a bias as it is in the first model."""
    elman = WIDE["elman"]
    models = [elman.build(seed).state_dict() for seed in range(2)]
    before = [{name: tensor.clone() for name, tensor in model.items()} for model in models]
    holders = [make_data_holder(elman, elman.outputs(elman.build(5))) for _ in range(2)]
    fed_sgd(make_problem(elman, models, holders), steps=1, start=start)
    for model, kept in zip(models, before, strict=True):
        assert all(torch.equal(model[name], kept[name]) for name in kept)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": -1}, "-1 steps"),
        ({"rate": 0.0}, "the rate 0.0"),
        ({"participants": 3}, "3 of 2 models with averaging weight"),
        ({"participants": 0}, "0 of 2 models"),
        ({"start": "zero"}, "start is 'zero'; known are average, structured_compression"),
    ],
)
def test_invalid_options_of_fed_sgd_are_explained(options, message):
    problem = split_regression(0)[0]
    problem = vectors([[0.0, 0, 0]] * 3, problem.data_holders, [1, 1, 0])
    with pytest.raises(MergeError, match=message):
        fed_sgd(problem, **options)
