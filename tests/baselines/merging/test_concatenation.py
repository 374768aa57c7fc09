"""A concatenation returns the mean of its models, in any order and under any permutation."""

import pytest

torch = pytest.importorskip("torch")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.baselines.merging.concatenation import concatenate
from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.symmetry.table import Symmetry

SYMMETRY = Symmetry.of(
    {"0.weight": "a _in", "0.bias": "a", "2.weight": "b a", "2.bias": "b"},
    {"4.weight": "_out b", "4.bias": "_out"},
)


def a_network(sizes, generator):
    first, second, third, last = sizes
    network = torch.nn.Sequential(
        torch.nn.Linear(first, second),
        torch.nn.ReLU(),
        torch.nn.Linear(second, third),
        torch.nn.Tanh(),
        torch.nn.Linear(third, last),
    ).double()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    return network.requires_grad_(False)


@given(
    st.tuples(*[st.integers(1, 5)] * 4),
    st.integers(1, 4),
    st.integers(0, 2**32),
)
def test_outputs_are_the_mean(sizes, count, seed):
    generator, draws = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    networks = [a_network(sizes, generator) for _ in range(count)]
    x = torch.randn(7, sizes[0], generator=generator, dtype=torch.float64)
    expected = torch.stack([network(x) for network in networks]).mean(0)
    first, second, third, last = sizes
    wide = a_network((first, count * second, count * third, last), generator)
    models = [network.state_dict() for network in networks]
    for some in (
        models,
        models[::-1],
        [SYMMETRY.apply(SYMMETRY.group(model).random(draws), model) for model in models],
    ):
        wide.load_state_dict(concatenate(SYMMETRY, some))
        torch.testing.assert_close(wide(x), expected)


def test_axes_that_join_permutations_are_refused():
    table = Symmetry.of({"w": "(a | b)", "x": "a", "y": "b"})
    model = {"w": torch.zeros(5), "x": torch.zeros(2), "y": torch.zeros(3)}
    with pytest.raises(MergeError, match="joins several permutations"):
        concatenate(table, [model, model])
