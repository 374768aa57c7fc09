"""The free permutations form a group, and matrices are equivalent to index arrays."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fleet_merging.errors import PermutationError
from fleet_merging.symmetry.group import PermutationGroup

GROUP = PermutationGroup({"h": (5,), "head": (3,), "k": (3, 4)}, {"k": "head"})
ELEMENTS = st.integers(0, 2**32 - 1).map(lambda seed: GROUP.random(np.random.default_rng(seed)))


def same(one, other):
    return one.keys() == other.keys() and all(
        np.array_equal(one[name], other[name]) for name in one
    )


@given(ELEMENTS, ELEMENTS, ELEMENTS)
def test_composition_is_associative(a, b, c):
    compose = GROUP.compose
    assert same(compose(compose(a, b), c), compose(a, compose(b, c)))


@given(ELEMENTS)
def test_the_identity_changes_nothing(a):
    assert same(GROUP.compose(a, GROUP.identity()), a)
    assert same(GROUP.compose(GROUP.identity(), a), a)


@given(ELEMENTS)
def test_the_inverse_is_one_on_either_side(a):
    inverse = GROUP.invert(a)
    assert same(GROUP.compose(a, inverse), GROUP.identity())
    assert same(GROUP.compose(inverse, a), GROUP.identity())


@given(ELEMENTS, ELEMENTS, ELEMENTS)
def test_the_moved_fraction_is_relative_to_the_first_element(a, b, shift):
    assert GROUP.moved_fraction([a]) == GROUP.moved_fraction([a, a]) == 0
    assert GROUP.moved_fraction([a, b]) == GROUP.moved_fraction(
        [GROUP.compose(shift, a), GROUP.compose(shift, b)]
    )
    moved = sum(int((b[name] != GROUP.identity()[name]).sum()) for name in b)
    assert GROUP.moved_fraction([GROUP.identity(), b]) == moved / (5 + 3 + 12)
    assert GROUP.moved_fraction([]) is None  # of a method that permutes nothing
    assert GROUP.moved_fraction([GROUP.matrices(a), b]) is None


@given(ELEMENTS)
def test_matrices_are_permutations_and_reorder_as_indices_do(a):
    matrices = GROUP.matrices(a)
    units = torch.arange(4.0, dtype=torch.float64)
    assert torch.equal(matrices["k"] @ units, units[torch.as_tensor(a["k"])])
    for matrix in matrices.values():
        assert torch.equal(matrix.sum(-1), torch.ones_like(matrix[..., 0]))
        assert torch.equal(matrix.sum(-2), torch.ones_like(matrix[..., 0]))


def test_random_elements_follow_from_the_seed_and_reach_every_order():
    small = PermutationGroup({"h": (3,)}, {})
    draws = [tuple(small.random(np.random.default_rng(seed))["h"]) for seed in range(100)]
    assert draws == [tuple(small.random(np.random.default_rng(seed))["h"]) for seed in range(100)]
    assert len(set(draws)) == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"h": [0, 1, 2, 3, 3]}, r"'h' begins with \[0, 1, 2, 3, 3\]; .* hold each of 0 to 4"),
        ({"h": [0, 1]}, r"'h' has the shape \(2,\)"),
        ({"k": [0, 1, 2, 3]}, r"integers of the shape \(3, 4\)"),
        ({"h": np.eye(4)}, r"floats of the shape \(5, 5\)"),
        ({"h": [True] * 5}, "torch.bool"),
        ({"h": "order"}, "'h' cannot be read"),
        ({"g": [0]}, "'g' unknown"),
    ],
)
def test_invalid_elements_are_explained(change, message):
    element = GROUP.identity() | {name: np.array(value) for name, value in change.items()}
    with pytest.raises(PermutationError, match=message):
        GROUP.tensors(element)


def test_views_of_every_kind_are_elements():
    reversed_view = np.arange(5)[::-1]
    frozen = np.array(reversed_view)
    frozen.flags.writeable = False
    views: list[Any] = [
        reversed_view,
        frozen,
        torch.arange(4, -1, -1),
        [4, 3, 2, 1, 0],
        reversed_view.astype("u1"),
    ]
    for index in views:
        tensors = GROUP.tensors(GROUP.identity() | {"h": index})
        assert tensors["h"].tolist() == [4, 3, 2, 1, 0]


def test_a_missing_name_and_soft_products_are_refused():
    with pytest.raises(PermutationError, match="'h', 'head' missing"):
        GROUP.invert({"k": GROUP.identity()["k"]})
    soft = GROUP.identity() | {"h": np.full((5, 5), 0.2)}
    with pytest.raises(PermutationError, match="'h' hold matrices, and only hard"):
        GROUP.compose(soft, soft)
