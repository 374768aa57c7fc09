"""Adapters of low rank: merged as products, whatever their factors."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import nn

from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.methods.lora import (
    FACTORED,
    merged_products,
    products,
    with_changes,
)
from fleet_tools.baselines.merging.methods.registry import merge
from fleet_tools.baselines.merging.methods.spectra import COMBINATIONS
from fleet_tools.baselines.merging.problem import MergeProblem
from fleet_tools.baselines.merging.symmetry.table import Symmetry

SEEDS = st.integers(0, 999)
A, B = "base_model.model.0.lora_A.weight", "base_model.model.0.lora_B.weight"


def adapter(seed, rank=2, inputs=6, outputs=5):
    generator = torch.Generator().manual_seed(seed)
    shapes = {A: (rank, inputs), B: (outputs, rank)}
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in shapes.items()
    }


def problem_of(*adapters):
    return MergeProblem(Symmetry.of(dict.fromkeys(adapters[0], "_ _")), adapters)


def product(state):
    return (state[B] @ state[A]).numpy()


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.sampled_from(COMBINATIONS))
def test_the_merge_does_not_depend_on_the_factors(seed, by):
    """B M and M^-1 A make the same change; a mean of the factors would not."""
    adapters = [adapter(seed), adapter(seed + 1)]
    generator = torch.Generator().manual_seed(seed)
    M = torch.randn(2, 2, generator=generator, dtype=torch.float64) + 3 * torch.eye(2)
    other = {A: torch.linalg.solve(M, adapters[1][A]), B: adapters[1][B] @ M}
    one, two = (
        merged_products([adapters[0], each], by=by)[A].numpy() for each in (adapters[1], other)
    )
    np.testing.assert_allclose(one, two, atol=1e-6)
    if by in FACTORED:
        one, two = (
            product(merge("lora", problem_of(adapters[0], each), by=by).state)
            for each in (adapters[1], other)
        )
        np.testing.assert_allclose(one, two, atol=1e-6)
    means = [product({k: (a[k] + b[k]) / 2 for k in (A, B)}) for a, b in
             ([adapters[0], adapters[1]], [adapters[0], other])]  # fmt: skip
    assert np.abs(means[0] - means[1]).max() > 1e-3


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.integers(1, 4))
def test_the_merged_adapter_is_the_closest_of_its_rank_to_the_mean_product(seed, count):
    adapters = [adapter(seed + index) for index in range(count)]
    merged = merge("lora", problem_of(*adapters)).state
    mean = np.mean([product(each) for each in adapters], 0)
    U, S, V = np.linalg.svd(mean)
    np.testing.assert_allclose(product(merged), U[:, :2] * S[:2] @ V[:2], atol=1e-9)
    np.testing.assert_allclose(merged[A].norm(), merged[B].norm())


@given(SEEDS)
def test_copies_of_an_adapter_with_other_factors_are_that_adapter(seed):
    one = adapter(seed)
    two = {A: 2 * one[A].flip(0), B: one[B].flip(1) / 2}
    merged = merge("lora", problem_of(one, two)).state
    np.testing.assert_allclose(product(merged), product(one), atol=1e-9)


def test_adapters_of_different_ranks_change_one_network():
    """By another route: the network with both adapters beside its weights, averaged by hand."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 5), nn.ReLU()).double()
    ranks, factors = (1, 3), (2.0, 0.5)
    adapters = [adapter(rank, rank) for rank in ranks]
    changes = merged_products(adapters, [1, 3], factor=factors)
    state = with_changes(network.state_dict(), changes)
    x = torch.randn(4, 6, dtype=torch.float64)
    first: Any = network[0]
    weight = first.weight + sum(
        w * s * each[B] @ each[A]
        for w, s, each in zip((0.25, 0.75), factors, adapters, strict=True)
    )
    expected = torch.relu(x @ weight.T + network[0].bias)
    torch.testing.assert_close(torch.func.functional_call(network, state, (x,)), expected)


def test_convolutions_are_merged_as_kernels():
    generator = torch.Generator().manual_seed(0)
    names = {"c.lora_A.weight": (2, 3, 3, 3), "c.lora_B.weight": (4, 2, 1, 1)}
    state = {k: torch.randn(shape, generator=generator) for k, shape in names.items()}
    (change,) = products(state).values()
    image = torch.randn(1, 3, 5, 5, generator=generator).double()
    a, b = (state[name].double() for name in names)
    expected = nn.functional.conv2d(nn.functional.conv2d(image, a), b)
    torch.testing.assert_close(nn.functional.conv2d(image, change), expected)


BAD = {
    "no factors": ({"weight": torch.ones(2, 2)}, "it has none"),
    "a factor alone": ({A: torch.ones(2, 3)}, "without a pair"),
    "a second factor alone": (adapter(0) | {"1.lora_B.weight": torch.ones(2, 2)}, "without a pair"),
    "another rank": ({A: torch.ones(2, 3), B: torch.ones(2, 3)}, "has the rank 2"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_adapter_is_refused(case):
    state, words = BAD[case]
    with pytest.raises(MergeError, match=words):
        products(state)


def test_adapters_and_weights_that_do_not_fit_are_refused():
    with pytest.raises(MergeError, match="different weights"):
        merged_products([adapter(0), {k.replace(".0.", ".1."): v for k, v in adapter(0).items()}])
    changes = merged_products([adapter(0)])
    with pytest.raises(MergeError, match=r"0\.weight, which is missing"):
        with_changes({"1.weight": torch.ones(5, 6)}, changes)
    with pytest.raises(MergeError, match=r"has \(6, 5\)"):
        with_changes({"0.weight": torch.ones(6, 5)}, changes)
    for by in ("magic", "iso_c"):
        with pytest.raises(MergeError, match=f"combined by '{by}'"):
            merge("lora", problem_of(adapter(0)), by=by)
