"""Task arithmetic, TIES-merging and DARE, against computations entry by entry."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from merging_support.problems import WIDE
from merging_support.vector_models import vectors

from fleet_merging.errors import MergeError, ModelMismatchError
from fleet_merging.methods.facts import METHODS
from fleet_merging.methods.registry import merge
from fleet_merging.methods.task_vectors import dare, task_arithmetic, ties
from fleet_merging.problem import MergeProblem
from fleet_merging.symmetry.table import Symmetry

SEEDS = st.integers(0, 999)


def drawn(seed, models=3, size=7):
    """Returns weights, task vectors and a base of few different numbers, so that entries tie."""
    generator = np.random.default_rng(seed)
    changes = generator.integers(-3, 4, (models, size)) / 2
    return generator.integers(1, 5, models), changes, generator.normal(size=size)


def problem_of(weights, changes, base, seed=0):
    return vectors(list(base + changes), weights=weights, base=base, seed=seed)


def change_of(merged, base):
    return merged.state["x"].numpy() - base


def ties_by_entry(weights, changes, density):
    """Returns the merged task vector of TIES, one number after the other."""
    trimmed = []
    for change in changes:
        ordered = sorted(np.abs(change), reverse=True)
        smallest = ordered[max(1, round(density * len(change))) - 1]
        trimmed.append([each if abs(each) >= smallest else 0.0 for each in change])
    merged = []
    for entries in zip(*trimmed, strict=True):
        votes = sum(weight * entry for weight, entry in zip(weights, entries, strict=True))
        agreeing = [(w, e) for w, e in zip(weights, entries, strict=True) if e * votes > 0]
        total = sum(weight for weight, _ in agreeing)
        merged.append(sum(weight * entry for weight, entry in agreeing) / total if total else 0.0)
    return np.array(merged)


@given(SEEDS, st.floats(-2, 2))
def test_task_arithmetic_is_affine_in_its_scale(seed, scale):
    weights, changes, base = drawn(seed)
    problem = problem_of(weights, changes, base)
    mean = np.average(changes, axis=0, weights=weights)
    change = change_of(task_arithmetic(problem, scale=scale), base)
    np.testing.assert_allclose(change, scale * mean, atol=1e-12)
    average = merge("naive_average", problem).state["x"]
    torch.testing.assert_close(task_arithmetic(problem).state["x"], average)


@given(SEEDS, st.floats(0.01, 1), st.integers(1, 5))
def test_ties_trims_elects_and_averages_each_entry(seed, density, models):
    weights, changes, base = drawn(seed, models)
    changes = changes + 1e-3 * np.round(changes)  # as far from a tie in magnitude, or equal
    change = change_of(ties(problem_of(weights, changes, base), density=density, scale=0.5), base)
    # The base is subtracted again: equal magnitudes could differ by rounding.
    own = np.stack([m["x"].numpy() for m in problem_of(weights, changes, base).models]) - base
    expected = ties_by_entry(weights, own, density)
    np.testing.assert_allclose(change, 0.5 * expected, atol=1e-12)


@given(SEEDS)
def test_ties_of_everything_is_the_average_where_signs_agree(seed):
    weights, changes, base = drawn(seed)
    changes = np.abs(changes) + 0.1
    problem = problem_of(weights, changes, base)
    torch.testing.assert_close(ties(problem, density=1.0).state, task_arithmetic(problem).state)


def test_ties_trims_whole_models_and_not_each_tensor():
    names = {"a": "_", "b": "_"}
    base = {name: torch.zeros(4) for name in names}
    model = {"a": torch.tensor([5.0, 6, 7, 8]), "b": torch.tensor([1.0, 2, 3, 4])}
    merged = ties(MergeProblem(Symmetry.of(names), [model], base=base), density=0.5)
    assert torch.equal(merged.state["a"], model["a"])
    assert torch.equal(merged.state["b"], torch.zeros(4))


def test_ties_trims_the_same_beside_tensors_that_nobody_trained():
    head, frozen = torch.tensor([1.0, 2, 3, 4]), torch.zeros(100)
    alone = MergeProblem(Symmetry.of({"a": "_"}), [{"a": head}], base={"a": torch.zeros(4)})
    base, model = {"a": torch.zeros(4), "b": frozen}, {"a": head, "b": frozen}
    beside = MergeProblem(Symmetry.of({"a": "_", "b": "_"}), [model], base=base)
    merged = ties(beside, density=0.5).state
    assert torch.equal(merged["a"], ties(alone, density=0.5).state["a"])
    assert torch.equal(merged["a"], torch.tensor([0.0, 0, 3, 4]))
    assert not merged["b"].any()


@given(SEEDS, st.floats(0.05, 1))
def test_dare_that_drops_nothing_is_what_follows(seed, density):
    problem = problem_of(*drawn(seed))
    averaged = dare(problem, drop=0.0, scale=0.7)
    torch.testing.assert_close(averaged.state, task_arithmetic(problem, scale=0.7).state)
    merged = dare(problem, drop=0.0, then="ties", density=density)
    torch.testing.assert_close(merged.state, ties(problem, density=density).state)


def test_dare_drops_the_given_fraction_and_keeps_the_expectation():
    size, drop = 20_000, 0.9
    problem = vectors([np.ones(size)], base=np.zeros(size))
    change = dare(problem, drop=drop).state["x"].numpy()
    assert set(np.round(change, 9)) == {0.0, 10.0}
    kept = (change > 0).mean()
    assert abs(kept - 0.1) < 4 * np.sqrt(0.1 * 0.9 / size)


def test_dare_draws_for_each_model_and_seed_anew():
    generator = np.random.default_rng(0)
    models = generator.normal(size=(2, 1000))

    def kept(*given, seed=0):
        return dare(vectors(given, base=np.zeros(1000), seed=seed), drop=0.5).state["x"] != 0

    for one, other in (
        (kept(models[0]), kept(models[1])),
        (kept(models[0]), kept(models[0], seed=1)),
    ):
        assert 0.4 < (one == other).double().mean() < 0.6
    both = kept(*models)
    assert torch.equal(both, kept(models[0]) | kept(models[1]))


def test_dare_leaves_tied_weights_tied():
    weight = torch.randn(50, generator=torch.Generator().manual_seed(0))
    names = {"a": "_", "b": "_"}
    base = {name: torch.zeros(50) for name in names}
    model = {name: weight for name in names}
    merged = dare(MergeProblem(Symmetry.of(names), [model], base=base))
    assert torch.equal(merged.state["a"], merged.state["b"])
    assert 0 < (merged.state["a"] != 0).sum() < 25


@pytest.mark.parametrize("method", [name for name in METHODS if "base" in METHODS[name].needs])
def test_without_a_base_they_say_what_to_give(method):
    with pytest.raises(MergeError, match="Give its `base`"):
        merge(method, vectors([[1.0], [2.0]]))


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("task_arithmetic", {"scale": float("nan")}, "scale is nan"),
        ("ties", {"density": 0.0}, "density is 0.0"),
        ("ties", {"density": 1.1}, "density is 1.1"),
        ("dare", {"drop": 1.0}, "to drop is 1.0"),
        ("dare", {"then": "median"}, "known are average, ties"),
    ],
)
def test_invalid_options_are_explained(method, options, message):
    with pytest.raises(MergeError, match=message):
        merge(method, vectors([[1.0], [2.0]], base=[0.0]), **options)


MLP = WIDE["mlp"]
MODELS = [MLP.build(seed).state_dict() for seed in range(2)]
BASE = MLP.build(2).state_dict()


def test_the_base_is_brought_into_the_order_of_the_table():
    shuffled = {name: BASE[name] for name in sorted(BASE, reverse=True)}
    base = MergeProblem(MLP.symmetry, MODELS, base=shuffled).base
    assert base is not None and list(base) == list(MLP.symmetry.axes)
    assert all(torch.equal(base[name], BASE[name]) for name in base)
    assert MergeProblem(MLP.symmetry, MODELS).base is None


@pytest.mark.parametrize(
    "base",
    [
        WIDE["conv"].build().state_dict(),
        {name: tensor.half() for name, tensor in BASE.items()},
        {name: tensor for name, tensor in BASE.items() if name != "0.bias"},
    ],
)
def test_a_base_of_another_form_is_refused(base):
    with pytest.raises(ModelMismatchError, match="The base, here model 2"):
        MergeProblem(MLP.symmetry, MODELS, base=base)
