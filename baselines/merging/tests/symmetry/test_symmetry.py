"""Permuted models: Proposition 1, homomorphism, and soft permutations as extension of hard ones."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from merging_support.architectures import ARCHITECTURES
from merging_support.wreath_products import compose, invert

from fleet_merging.errors import (
    AxisSizeError,
    AxisSyntaxError,
    ModelMismatchError,
    PermutationError,
    UncoveredParameterError,
)
from fleet_merging.symmetry.table import Symmetry, require_alike

KINDS = st.sampled_from(sorted(ARCHITECTURES))
SEEDS = st.integers(0, 2**32 - 1)


def element(kind, state, seed):
    return ARCHITECTURES[kind].symmetry.group(state).random(np.random.default_rng(seed))


def assert_same(one, other, tolerance=0.0):
    assert list(one) == list(other)
    for name in one:
        assert one[name].dtype == other[name].dtype
        torch.testing.assert_close(one[name], other[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ARCHITECTURES)
@settings(max_examples=3)
@given(seed=SEEDS)
def test_outputs_do_not_depend_on_the_order_of_units(kind, seed):
    """Proposition 1 of the paper, also for layers that the paper does not treat."""
    architecture = ARCHITECTURES[kind]
    model = architecture.build()
    state = model.state_dict()
    permuted = architecture.symmetry.apply(element(kind, state, seed), state)
    expected = architecture.outputs(model)
    assert expected.std() > 1e-3  # the output is not constant
    torch.testing.assert_close(
        architecture.outputs(model, permuted), expected, rtol=1e-10, atol=1e-10
    )


@given(KINDS, SEEDS, SEEDS)
def test_application_is_a_homomorphism(kind, one, two):
    symmetry = ARCHITECTURES[kind].symmetry
    state = ARCHITECTURES[kind].build().state_dict()
    group, first, second = (
        symmetry.group(state),
        element(kind, state, one),
        element(kind, state, two),
    )
    in_turn = symmetry.apply(second, symmetry.apply(first, state))
    assert_same(symmetry.apply(compose(group, second, first), state), in_turn)
    assert_same(symmetry.apply(invert(group, first), symmetry.apply(first, state)), state)
    assert_same(symmetry.apply(group.identity(), state), state)


@given(KINDS, SEEDS)
def test_a_permutation_matrix_acts_as_its_indices_do(kind, seed):
    symmetry = ARCHITECTURES[kind].symmetry
    state = {name: tensor for name, tensor in ARCHITECTURES[kind].build().state_dict().items()}
    hard = element(kind, state, seed)
    soft = symmetry.group(state).matrices(hard)
    assert_same(symmetry.apply(soft, state), symmetry.apply(hard, state), 1e-12)
    mixed = {name: soft[name] if index % 2 else hard[name] for index, name in enumerate(hard)}
    assert_same(symmetry.apply(mixed, state), symmetry.apply(hard, state), 1e-12)


@given(SEEDS)
def test_soft_application_is_that_of_the_matrices_product(seed):
    symmetry = Symmetry.of({"w": "h h", "b": "(_:2 h)"})
    generator = np.random.default_rng(seed)
    p, q, w, b = (torch.from_numpy(generator.normal(size=(4, 4))) for _ in range(4))
    state = {"w": w, "b": b.flatten()[:8]}
    once = symmetry.apply({"h": p}, state)
    torch.testing.assert_close(once["w"], p @ w @ p.T)
    torch.testing.assert_close(once["b"], torch.kron(torch.eye(2), p) @ state["b"])
    assert_same(symmetry.apply({"h": q}, once), symmetry.apply({"h": q @ p}, state), 1e-9)


def test_gradients_flow_through_soft_permutations():
    symmetry = Symmetry.of({"w": "(head:2 k@head) _"})
    state = {"w": torch.randn(6, 2, dtype=torch.float64)}
    group = symmetry.group(state)
    start = group.matrices(group.identity())
    assert torch.autograd.gradcheck(
        lambda head, k: symmetry.apply({"head": head, "k": k}, state)["w"],
        [start[name].requires_grad_() for name in ("head", "k")],
    )


@given(KINDS, SEEDS)
def test_arguments_are_not_changed_and_share_no_memory_with_results(kind, seed):
    symmetry = ARCHITECTURES[kind].symmetry
    state = ARCHITECTURES[kind].build().state_dict()
    before = {name: tensor.clone() for name, tensor in state.items()}
    hard = element(kind, state, seed)
    kept = {name: index.copy() for name, index in hard.items()}
    for permutation in (
        hard,
        symmetry.group(state).identity(),
        symmetry.group(state).matrices(hard),
    ):
        for tensor in symmetry.apply(permutation, state).values():
            tensor.fill_(1)
    assert_same(state, before)
    assert all(np.array_equal(hard[name], kept[name]) for name in kept)


def test_a_table_is_equal_to_that_of_its_strings():
    for architecture in ARCHITECTURES.values():
        assert Symmetry.of(architecture.symmetry.table()) == architecture.symmetry


@given(
    *[st.integers(1, 6)] * 4,
    st.permutations(["w (a b) _", "x (a | c c2@c | _k | _k)", "y a", "z (c c2@c)", "u (c _:3)"]),
)
def test_sizes_solve_the_equations_of_all_axes_in_any_order(a, b, c, d, lines):
    shapes = {"w": (a * b, 3), "x": (a + c * d + 4,), "y": (a,), "z": (c * d,), "u": (c * 3,)}
    symmetry = Symmetry.of(dict(line.split(" ", 1) for line in lines))
    sizes = symmetry.group({name: torch.zeros(shape) for name, shape in shapes.items()}).sizes
    assert sizes == {"a": (a,), "b": (b,), "c": (c,), "c2": (c, d)}


def test_one_unknown_size_may_occur_twice_along_an_axis():
    state = {"w": torch.zeros(4, 6), "b": torch.zeros(4)}
    sizes = Symmetry.of({"w": "h (h | c | c)", "b": "h"}).group(state).sizes
    assert sizes == {"c": (1,), "h": (4,)}


def test_sizes_of_networks_follow_from_the_shapes():
    def sizes(kind):
        architecture = ARCHITECTURES[kind]
        return architecture.symmetry.group(architecture.build().state_dict()).sizes

    assert sizes("mlp ReLU") == {"h1": (6,), "h2": (5,)}
    assert sizes("lstm") == {"h0": (5,), "h1": (5,)}
    assert sizes("attention") == {"head": (3,), "qk": (3, 4), "v": (3, 4)}
    assert sizes("attention of four linears") == {"head": (2,), "qk": (2, 4), "v": (2, 2)}
    assert sizes("conv and group norm") == {"g": (3,), "c": (3, 2)}
    assert sizes("pointnet") == {"c1": (6,), "c2": (9,), "h": (5,)}
    assert sizes("residual and its stream") == {"h": (8,), "res": (6,)}


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ({"w": "h _"}, UncoveredParameterError, r"The table lacks b \(4,\)"),
        ({"w": "h _", "b": "h", "c": "_"}, UncoveredParameterError, "The table has c"),
        ({"w": "h", "b": "h"}, AxisSizeError, r"w has the shape \(4, 6\), and 'h' names 1 axes"),
        ({"w": "h h", "b": "h"}, AxisSizeError, r"does not give 6: h has 4 \(from w\)"),
        ({"w": "h:5 _", "b": "_"}, AxisSizeError, r"give 4: h has 5 \(from w\)"),
        ({"w": "h:5 _", "b": "h:4"}, AxisSizeError, "5 units in w and 4 in b"),
        ({"w": "h (c _:4)", "b": "h"}, AxisSizeError, "does not give 6"),
        ({"w": "h (c k)", "b": "h"}, AxisSizeError, "do not determine the sizes of c, k in w"),
        ({"w": "h (h | _:9)", "b": "h"}, AxisSizeError, "does not give 6"),
        ({"w": "(g:2 k@g) _", "b": "(_:2 k)"}, AxisSyntaxError, "'k' belongs to g in w and to no"),
        ({"w": "(a:2 b@a) c@b", "b": "_"}, AxisSyntaxError, "'b', which itself belongs to 'a'"),
        ({"w": 3, "b": "h"}, AxisSyntaxError, "w: axes are a string"),
        ({"w": "h (", "b": "h"}, AxisSyntaxError, "w: The axes 'h \\('"),
    ],
)
def test_tables_that_do_not_fit_are_refused(table, error, message):
    state = {"w": torch.zeros(4, 6), "b": torch.zeros(4)}
    with pytest.raises(error, match=message):
        Symmetry.of(table).group(state)


def test_a_parameter_is_given_once_and_integers_are_permuted_hard_only():
    with pytest.raises(AxisSyntaxError, match="w is given twice, as 'h' and as '_'"):
        Symmetry.of({"w": "h"}, {"w": "_"})
    symmetry, state = Symmetry.of({"w": "h"}), {"w": torch.arange(3)}
    assert symmetry.apply({"h": np.array([2, 0, 1])}, state)["w"].tolist() == [2, 0, 1]
    with pytest.raises(PermutationError, match=r"w holds torch.int64.* index arrays for h"):
        symmetry.apply({"h": np.eye(3)}, state)


def test_only_tensors_have_axes():
    state: Any = {"w": 3}
    with pytest.raises(UncoveredParameterError, match="w holds a int"):
        Symmetry.of({"w": "h"}).group(state)


def test_models_of_different_forms_are_refused():
    state = {"w": torch.zeros(2, 3), "b": torch.zeros(2)}
    require_alike([state, {name: tensor + 1 for name, tensor in state.items()}])
    with pytest.raises(ModelMismatchError, match="only one of them has b"):
        require_alike([state, {"w": state["w"]}])
    with pytest.raises(
        ModelMismatchError, match=r"w has the shape \(2, 3\) in model 0 and \(3, 2\)"
    ):
        require_alike([state, state, state | {"w": torch.zeros(3, 2)}])
    with pytest.raises(
        ModelMismatchError, match=r"b has the dtype torch.float32 in model 0 and tor"
    ):
        require_alike([state, state | {"b": state["b"].double()}])
