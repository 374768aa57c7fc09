"""Matching recovers permutations, and never increases distances."""

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from merging_support.architectures import ARCHITECTURES
from merging_support.problems import WIDE, noisy
from merging_support.wreath_products import invert

from fleet_merging.average import flatten
from fleet_merging.errors import PermutationError
from fleet_merging.matching.assignment import (
    assign_nested,
    assign_quadratic,
    total_product,
    unfold_models,
)
from fleet_merging.matching.weights import CoordinateAscent, match_weights
from fleet_merging.symmetry.table import Symmetry

SEEDS = st.integers(0, 2**32 - 1)


def rng(seed):
    return np.random.default_rng(seed)


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert np.array_equal(one[name], other[name]), name


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("kind", WIDE)
def test_a_random_permutation_is_recovered_exactly(kind, noise):
    architecture = WIDE[kind]
    model = architecture.build().state_dict()
    group = architecture.symmetry.group(model)
    for seed in range(2):
        element = group.random(rng(seed))
        moved = noisy(architecture.symmetry.apply(element, model), noise, seed)
        found = match_weights(architecture.symmetry, model, moved, rng(seed))
        assert_equal(found, invert(group, element))


@given(st.sampled_from(sorted(ARCHITECTURES)), SEEDS)
def test_matching_never_increases_the_distance_of_two_models(kind, seed):
    architecture = ARCHITECTURES[kind]
    one, other = (architecture.build(s).state_dict() for s in (1, 2))
    group = architecture.symmetry.group(one)
    start = group.random(rng(seed))
    found = match_weights(architecture.symmetry, one, other, rng(seed), start)
    before, after = (
        float((flatten(one) - flatten(architecture.symmetry.apply(element, other))).norm())
        for element in (start, found)
    )
    assert after <= before + 1e-9
    again = match_weights(architecture.symmetry, one, other, rng(seed + 1), found)
    pairs = unfold_models(architecture.symmetry, one, other)
    ascent = CoordinateAscent(group, pairs)
    if not ascent.quadratic:
        assert_equal(again, found)  # no step increases the objective
    repeated, walked = (
        total_product(pairs, group.tensors(element))
        for element in (again, ascent.random_walk(group.tensors(found), rng(seed)))
    )
    value = total_product(pairs, group.tensors(found))
    assert min(repeated, walked) >= value - 1e-9 * abs(value)


@given(SEEDS, st.integers(2, 5), st.integers(1, 3))
def test_quadratic_assignment_increases_the_objective_up_to_the_best(seed, n, r):
    generator = rng(seed)
    R, W = (torch.from_numpy(generator.normal(size=(n, n, r))) for _ in range(2))
    L = torch.from_numpy(generator.normal(size=(n, n)))

    def value(index):
        index = torch.as_tensor(index)
        return float(L[torch.arange(n), index].sum() + (R * W[index][:, index]).sum())

    start = torch.from_numpy(generator.permutation(n))
    found = assign_quadratic(L, [(R, W)], start)
    best = max(permutations(range(n)), key=value)
    assert value(start) - 1e-9 <= value(found) <= value(best) + 1e-9
    assert value(assign_quadratic(L, [(R, W)], torch.tensor(best))) == pytest.approx(value(best))


@given(SEEDS)
def test_nested_assignment_is_the_best_of_all(seed):
    m, n = 3, 3
    generator = rng(seed)
    outer = torch.from_numpy(generator.normal(size=(m, m)))
    inner = {name: torch.from_numpy(generator.normal(size=(m, m, n, n))) for name in ("k", "v")}
    order, units = assign_nested(outer, inner)

    def value(order, units):
        return sum(
            outer[i, j] + sum(inner[k][i, j][range(n), list(units[k][i])].sum() for k in inner)
            for i, j in enumerate(order)
        )

    orders = list(permutations(range(n)))
    best = max(
        sum(
            outer[i, j]
            + sum(max(inner[k][i, j][range(n), list(p)].sum() for p in orders) for k in inner)
            for i, j in enumerate(p_outer)
        )
        for p_outer in permutations(range(m))
    )
    assert float(value(order.tolist(), units)) == pytest.approx(float(best))


def test_a_tensor_with_one_name_on_three_axes_is_refused():
    symmetry = Symmetry.of({"w": "h h h"})
    state = {"w": torch.rand(3, 3, 3)}
    with pytest.raises(PermutationError, match="'h' occurs on 3 axes"):
        match_weights(symmetry, state, state, rng(0))
