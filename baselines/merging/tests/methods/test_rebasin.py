"""MergeMany: references by sums that travel, the same as averages of all others."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from merging_support.problems import WIDE

from fleet_merging.average import average, weighted_sum
from fleet_merging.errors import ModelMismatchError
from fleet_merging.methods.rebasin import alternate
from fleet_merging.methods.registry import merge
from fleet_merging.problem import MergeProblem

SEEDS = st.integers(0, 2**32 - 1)
SYMMETRY = WIDE["mlp"].symmetry
MODELS = [WIDE["mlp"].build(seed).state_dict() for seed in range(6)]


def walk(problem, align, rounds=2):
    """Runs an alternation on weights, and returns its permutations and the number of averages."""
    calls = []

    def permuted(index, permutation):
        calls.append(index)
        return problem.symmetry.apply(permutation, problem.models[index])

    found = alternate(problem, permuted, align, np.random.default_rng(0), rounds)
    return found, len(calls)


@settings(max_examples=15)
@given(
    SEEDS, st.sampled_from([None, [1, 0, 2, 3], [1, 0, 0, 0], [1, 1e-17, 2e-17, 0], [5, 1, 1, 1]])
)
def test_references_are_the_averages_of_all_others(seed, weights):
    """Also where the others weigh so little that their sum would vanish in a difference."""
    problem = MergeProblem(SYMMETRY, MODELS[:4], averaging_weights=weights)
    generator = np.random.default_rng(seed)
    present = [problem.group.identity() for _ in range(4)]

    def align(index, reference, before):
        others = [i for i in range(4) if i != index]
        values = [1.0 if weights is None else weights[i] for i in others]
        expected = average(
            [SYMMETRY.apply(present[i], problem.models[i]) for i in others],
            values if any(values) else None,
        )
        for name, tensor in expected.items():
            torch.testing.assert_close(reference[name], tensor, rtol=1e-6, atol=1e-9)
        assert all(np.array_equal(before[name], present[index][name]) for name in before)
        present[index] = problem.group.random(generator)
        return present[index]

    walk(problem, align)


def test_the_cost_of_a_round_is_linear_in_the_number_of_models():
    def count(models, weights=None):
        problem = MergeProblem(SYMMETRY, models, averaging_weights=weights)
        generator = np.random.default_rng(0)
        return walk(problem, lambda *_: problem.group.random(generator), rounds=1)[1]

    assert count(MODELS[:3] * 4) == 3 * 12  # for the sum, for the rest, and for the new sum
    assert count(MODELS[:3] * 4, [12.0, *[1.0] * 11]) == 3 * 12 + 11


def test_twice_as_many_copies_merge_into_the_same_model():
    one = MODELS[0]
    group = SYMMETRY.group(one)
    copies = [SYMMETRY.apply(group.random(np.random.default_rng(i)), one) for i in range(12)]
    for method in ("naive_average", "git_rebasin"):
        few, many = (
            merge(method, MergeProblem(SYMMETRY, chosen)).state
            for chosen in ([*copies[:6]], [*copies[:6], *copies[:6]])
        )
        few, many = (WIDE["mlp"].outputs(WIDE["mlp"].build(), state) for state in (few, many))
        torch.testing.assert_close(few, many)
    merged = merge("git_rebasin", MergeProblem(SYMMETRY, copies)).state
    outputs = (WIDE["mlp"].outputs(WIDE["mlp"].build(), state) for state in (merged, one))
    torch.testing.assert_close(*outputs)


@given(SEEDS, st.integers(1, 5))
def test_a_sum_forgets_a_model_that_is_taken_away(seed, count):
    generator = torch.Generator().manual_seed(seed)
    states = [
        {"w": torch.randn(3, generator=generator), "n": torch.tensor(i), "m": torch.tensor([True])}
        for i in range(count + 1)
    ]
    weights = (torch.rand(count + 1, generator=generator) + 0.1).tolist()
    rest = weighted_sum(states, weights).plus(states[-1], -weights[-1])
    expected = average(states[:-1], weights[:-1])
    found = rest.mean(states[0])
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor)
        assert found[name].dtype == tensor.dtype
    with pytest.raises(ModelMismatchError, match="m is a mask"):
        rest.plus({**states[0], "m": torch.tensor([False])}, 1.0)


def test_sums_of_many_half_precision_models_round_once():
    states = [{"w": torch.full((1,), 1.0 + i / 128, dtype=torch.bfloat16)} for i in (0, 1)]
    mean = average(states * 500)["w"]
    assert float(mean) in (1.0, 1.0078125)  # the two neighbours of the exact mean
