"""The free permutations are a group, and matrices say the same as index arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from fleet_tools.baselines.merging.errors import PermutationError
from fleet_tools.baselines.merging.symmetry.group import PermutationGroup

GROUP = PermutationGroup({"h": (5,), "head": (3,), "k": (3, 4)}, {"k": "head"})
ELEMENTS = st.integers(0, 2**32 - 1).map(lambda seed: GROUP.random(np.random.default_rng(seed)))


def same(ours, theirs):
    return ours.keys() == theirs.keys() and all(
        np.array_equal(ours[name], theirs[name]) for name in ours
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
def test_the_inverse_undoes_from_either_side(a):
    inverse = GROUP.invert(a)
    assert same(GROUP.compose(a, inverse), GROUP.identity())
    assert same(GROUP.compose(inverse, a), GROUP.identity())


@given(ELEMENTS, ELEMENTS, ELEMENTS)
def test_how_many_units_moved_is_seen_from_the_first_and_counted_by_hand(a, b, shift):
    assert GROUP.moved([a]) == GROUP.moved([a, a]) == 0
    assert GROUP.moved([a, b]) == GROUP.moved([GROUP.compose(shift, a), GROUP.compose(shift, b)])
    elsewhere = sum(int((b[name] != GROUP.identity()[name]).sum()) for name in b)
    assert GROUP.moved([GROUP.identity(), b]) == elsewhere / (5 + 3 + 12)
    assert GROUP.moved([GROUP.matrices(a), b]) is None


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
    ("change", "why"),
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
def test_what_is_no_element_is_explained(change, why):
    given_ = GROUP.identity() | {name: np.array(value) for name, value in change.items()}
    with pytest.raises(PermutationError, match=why):
        GROUP.tensors(given_)


def test_views_of_every_kind_are_elements():
    backward = np.arange(5)[::-1]
    frozen = np.array(backward)
    frozen.flags.writeable = False
    for index in (
        backward,
        frozen,
        torch.arange(4, -1, -1),
        [4, 3, 2, 1, 0],
        backward.astype("u1"),
    ):
        tensors = GROUP.tensors(GROUP.identity() | {"h": index})
        assert tensors["h"].tolist() == [4, 3, 2, 1, 0]


def test_a_missing_name_and_soft_products_are_refused():
    with pytest.raises(PermutationError, match="'h', 'head' missing"):
        GROUP.invert({"k": GROUP.identity()["k"]})
    soft = GROUP.identity() | {"h": np.full((5, 5), 0.2)}
    with pytest.raises(PermutationError, match="'h' hold matrices, and only hard"):
        GROUP.compose(soft, soft)
