"""Laws that every method obeys."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from merging_support.permuted_copies import SHORT, copies, different_models, outputs
from merging_support.problems import WIDE, noisy

from fleet_merging.average import average, flatten
from fleet_merging.errors import MergeError, ModelMismatchError, UnknownChoiceError
from fleet_merging.matching.soft_descent import Descent
from fleet_merging.methods.facts import METHODS, NETWORK
from fleet_merging.methods.fleet_merge import fleet_merge
from fleet_merging.methods.rebasin import git_rebasin, sinkhorn_rebasin
from fleet_merging.methods.registry import merge, needs
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.robust import RULES

MERGES = [
    name
    for name, facts in METHODS.items()
    if facts.returns == NETWORK and name not in {"distillation", "lora", *RULES}
]
"""Methods of one network, but a student, adapters and rules, whose laws are in their own tests."""
FITTED = {"regmean", "least_squares", "head_refit", "structured_compression"}
"""Methods that solve for the merged model with messages in single precision."""
CHANGED = {"ties", "dare", "iso_c", "fed_sgd"}
"""Methods that make another model of one."""
AVERAGING = [name for name in MERGES if name not in FITTED | CHANGED | {"fisher", "tsv_m", "wudi"}]
"""Methods that return the mean of the permuted models."""

STEPPED = {name for name in MERGES if "sinkhorn" in name or "fleet" in name}


def options(method):
    few = {"fisher": {"samples": 2}, "fed_sgd": {"steps": 2}}
    return few.get(method, {"descent": SHORT} if method in STEPPED else {})


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("count", [2, 4])
def test_matching_recovers_the_function_of_permuted_copies(kind, count):
    problem = copies(kind, count)
    merged = git_rebasin(problem)
    torch.testing.assert_close(outputs(kind, merged.state), outputs(kind, problem.models[0]))


@pytest.mark.parametrize("method", MERGES)
def test_the_order_of_names_does_not_matter(method):
    """Models from files have names in random order."""
    problem = copies("mlp", 3)
    generator = np.random.default_rng(1)
    shuffled = [
        {name: model[name] for name in generator.permutation(list(model))}
        for model in problem.models
    ]
    assert len({tuple(model) for model in shuffled}) == 3
    one, other = (
        merge(method, each, **options(method)).state
        for each in (problem, replace(problem, models=shuffled))
    )
    assert one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)
    assert torch.equal(flatten(problem.models[0]), flatten(shuffled[0]))


@pytest.mark.parametrize("loss", ["l1", "l2"])
def test_sinkhorn_rebasin_finds_a_permuted_copy_by_its_weights(loss):
    problem = copies("mlp", 2)
    merged = sinkhorn_rebasin(problem, loss=loss, descent=Descent(steps=150))
    torch.testing.assert_close(outputs("mlp", merged.state), outputs("mlp", problem.models[0]))


@pytest.mark.parametrize("loss", ["midpoint", "random_point"])
def test_sinkhorn_rebasin_lowers_the_barrier_by_data_alone(loss):
    problem = copies("mlp", 2)
    expected = outputs("mlp", problem.models[0])

    def error(state):
        return float((outputs("mlp", state) - expected).square().mean())

    merged = sinkhorn_rebasin(problem, loss=loss, descent=Descent(steps=150))
    assert error(merged.state) < 0.5 * error(merge("naive_average", problem).state)


@pytest.mark.parametrize("method", MERGES)
def test_a_method_changes_nothing_and_is_a_function_of_its_arguments(method):
    problem = copies("mlp", 3)
    before = [{name: tensor.clone() for name, tensor in m.items()} for m in problem.models]
    first, second = (merge(method, problem, **options(method)) for _ in range(2))
    for kept, model in zip(before, problem.models, strict=True):
        assert all(torch.equal(kept[name], model[name]) for name in kept)
    assert list(first.state) == list(problem.models[0])
    for name, tensor in first.state.items():
        assert torch.equal(tensor, second.state[name])
        assert tensor.dtype == problem.models[0][name].dtype and not tensor.requires_grad
    assert len(first.permutations) == 3


@pytest.mark.parametrize("method", AVERAGING)
def test_the_merge_is_the_mean_of_the_permuted_models(method):
    problem = copies("mlp", 3)
    merged = merge(method, problem, **options(method))
    mean = average(problem.permuted(merged.permutations))
    for name in mean:
        torch.testing.assert_close(mean[name], merged.state[name])


@pytest.mark.parametrize("method", sorted(set(MERGES) - CHANGED))
def test_one_model_is_merged_into_itself(method):
    problem = copies("mlp", 1)
    merged = merge(method, problem, **options(method))
    if method != "fleet_merge_soft":  # whose permutation may stay soft
        tolerance: Any = {"rtol": 1e-4, "atol": 1e-5} if method in FITTED else {}  # of messages
        torch.testing.assert_close(
            outputs("mlp", merged.state), outputs("mlp", problem.models[0]), **tolerance
        )


@pytest.mark.parametrize(
    "method", sorted(set(AVERAGING) - {"fleet_merge_soft", "fleet_merge_listing"})
)
def test_a_model_without_weight_does_not_matter_in_the_mean(method):
    problem = different_models(3, averaging_weights=[1, 0, 1])
    merged = merge(method, problem, **options(method))
    first, _, third = problem.permuted(merged.permutations)
    mean = average([first, third])
    for name in mean:
        torch.testing.assert_close(merged.state[name], mean[name])


def test_mergemany_brings_noisy_copies_together():
    problem = copies("elman", 4)
    models = [noisy(model, 0.1, seed) for seed, model in enumerate(problem.models)]
    problem = MergeProblem(problem.symmetry, models, averaging_weights=[4, 1, 2, 1])
    aligned = problem.permuted(git_rebasin(problem).permutations)
    size = float(flatten(models[0]).norm())
    assert all(float((flatten(m) - flatten(aligned[0])).norm()) < 0.2 * size for m in aligned)


INVALID = {
    "no data holders": (
        lambda p: fleet_merge(MergeProblem(p.symmetry, p.models)), "no data holders to answer"),
    "no shared data": (
        lambda p: sinkhorn_rebasin(MergeProblem(p.symmetry, p.models)), "no data common to all"),
    "a loss": (lambda p: sinkhorn_rebasin(p, loss="l3"), "known are l1, l2"),
    "a start": (lambda p: fleet_merge(p, start="middle"), "known are identity, matching"),
    "a point": (lambda p: fleet_merge(p, point="end"), "known are interpolation"),
    "trust": (lambda p: fleet_merge(p, trust=1.0), "between 0 and 1"),
    "epochs": (lambda p: fleet_merge(p, epochs=0), "epochs of Fleet-Merge is 0"),
    "rounds": (lambda p: git_rebasin(p, rounds=0), "rounds of an alternation is 0"),
    "participants": (lambda p: fleet_merge(p, participants=9), "9 of 2 models"),
    "data holders": (
        lambda p: replace(p, data_holders=p.data_holders[:1]), "has 1 data holders"),
    "averaging weights": (lambda p: replace(p, averaging_weights=[1]), "Give 2 numbers"),
    "models": (lambda p: MergeProblem(p.symmetry, []), "no models"),
    "steps": (lambda p: Descent(steps=-1), "out of range"),
    "projection": (lambda p: Descent(projection="before"), "known are through"),
}  # fmt: skip


@pytest.mark.parametrize("what", INVALID)
def test_invalid_arguments_are_explained(what):
    call, message = INVALID[what]
    with pytest.raises(MergeError, match=message):
        call(different_models(2))


@pytest.mark.parametrize("method", METHODS)
def test_what_a_method_needs_is_known_before_it_runs(method):
    """Without any of it nothing is asked; with all of it the method runs."""
    problem = copies("mlp", 2)
    asked = []

    class Asked:
        def answer(self, query):
            asked.append(query)
            raise AssertionError

    for need in METHODS[method].needs:
        empty = replace(problem, data_holders=[Asked()] * 2, shared_data_holder=Asked())
        empty = replace(
            empty, **{need: () if isinstance(getattr(problem, need), list | tuple) else None}
        )
        with pytest.raises(MergeError, match=rf"\({need}\)"):
            merge(method, empty)
    assert not asked
    nothing = MergeProblem(problem.symmetry, problem.models)
    if not METHODS[method].needs and method in MERGES:
        merge(method, nothing)


def test_a_method_of_ones_own_says_what_it_needs():
    def own(problem):
        return MergeResult.network(problem.base)

    own.needs = ("base",)  # pyright: ignore[reportFunctionMemberAccess]
    assert needs(own) == ("base",)
    own.needs = ("bases",)  # pyright: ignore[reportFunctionMemberAccess]
    with pytest.raises(MergeError, match="needs 'bases'; known are base"):
        needs(own)


def test_models_of_another_form_and_unknown_methods_are_refused():
    problem = different_models(2)
    with pytest.raises(ModelMismatchError):
        MergeProblem(problem.symmetry, [problem.models[0], WIDE["conv"].build().state_dict()])
    with pytest.raises(UnknownChoiceError, match="Did you mean 'git_rebasin'"):
        merge("git_rebasing", problem)
