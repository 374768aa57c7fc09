"""Linear controllers as models of `merging`: their table gives the permutations of GL(n)."""

import numpy as np
import pytest
from hypothesis import given
from support.linear_cases import (
    assert_same_controller,
    assert_same_law,
    noisy,
    random_controller,
    seeds,
)
from support.shares import few

torch = pytest.importorskip("torch")

from fleet_merging.matching.soft_descent import Descent
from fleet_merging.methods.registry import merge
from fleet_merging.problem import MergeProblem
from fleet_merging.symmetry.table import State, Symmetry
from fleet_tools.baselines.linear_control.merging import average, merge_by_permutation
from fleet_tools.baselines.linear_control.systems import Controller

torch.set_num_threads(1)  # small tensors are slower in several threads

AXES = {"A": "s s", "B": "s _y", "C": "_u s"}
"""Those of an Elman network without a nonlinearity; a permutation P is P^T of GL(n) here."""
SYMMETRY = Symmetry.of(AXES)


def state(controller: Controller) -> State:
    return {name: torch.tensor(getattr(controller, name)) for name in AXES}


def controller(state: State) -> Controller:
    return Controller(**{name: tensor.numpy() for name, tensor in state.items()})


@given(seeds)
def test_a_permutation_acts_as_its_matrix_does_in_the_general_linear_group(seed):
    rng = np.random.default_rng(seed)
    given = random_controller(rng)
    element = SYMMETRY.group(state(given)).random(rng)
    (P,) = SYMMETRY.group(state(given)).matrices(element).values()
    permuted = controller(SYMMETRY.apply(element, state(given)))
    assert_same_controller(given.transformed(P.numpy().T), permuted, 1e-12)
    assert_same_law(given, permuted, 1e-12)


@given(seeds)
def test_the_naive_average_is_the_average(seed):
    rng = np.random.default_rng(seed)
    fleet = [random_controller(rng, 3, 2, 2) for _ in range(3)]
    merged = merge("naive_average", MergeProblem(SYMMETRY, list(map(state, fleet))))
    assert_same_controller(average(fleet).controller, controller(merged.state), 1e-12)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("git_rebasin", {}),
        ("sinkhorn_rebasin_l2", {"start": "matching", "trust": 0.9, "descent": Descent(steps=20)}),
    ],
)
@few(4)
@given(seed=seeds)
def test_policies_methods_bring_permuted_controllers_together(method, options, seed):
    rng = np.random.default_rng(seed)
    first = random_controller(rng, 6, 3, 2)
    group = SYMMETRY.group(state(first))
    copies = [noisy(first, rng, 0.01) for _ in range(2)]
    copies = [SYMMETRY.apply(group.random(rng), state(copy)) for copy in copies]
    merged = merge(method, MergeProblem(SYMMETRY, copies), **options)
    expected = merge_by_permutation(list(map(controller, copies))).controller
    assert_same_law(first, controller(merged.state), 0.2)
    assert_same_law(expected, controller(merged.state), 1e-9)
