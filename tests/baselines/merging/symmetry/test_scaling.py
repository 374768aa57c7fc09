"""Propositions 2 and 3: scaled permutations of ReLU networks, and the scaling of least norm."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from support.architectures import Architecture, Recurrent, numbers
from torch import nn

from fleet_tools.baselines.merging.average import flatten
from fleet_tools.baselines.merging.errors import ScalingError
from fleet_tools.baselines.merging.symmetry import layers as lay
from fleet_tools.baselines.merging.symmetry.scaling import minimal_norm_scales, scale
from fleet_tools.baselines.merging.symmetry.table import Symmetry


class Words(nn.Module):
    """Modules that write along another axis than 0: an embedding and a transposed convolution."""

    def __init__(self):
        super().__init__()
        self.words, self.up = nn.Embedding(5, 6), nn.ConvTranspose1d(6, 4, 2)
        self.out = nn.Linear(4, 3)

    def forward(self, words):
        return self.out(torch.relu(self.up(torch.relu(self.words(words)).mT)).amax(-1))


RELU = {
    "mlp": Architecture(
        lambda: nn.Sequential(
            nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 5), nn.LeakyReLU(), nn.Linear(5, 2)
        ),
        Symmetry.of(lay.mlp(["0", "2", "4"], ["_", "h1", "h2", "_"])),
        lambda: numbers(7, 3),
    ),
    "elman": Architecture(
        lambda: Recurrent(nn.RNN(3, 5, num_layers=2, batch_first=True, nonlinearity="relu"), 5),
        Symmetry.of(lay.elman("core", "_", ["h0", "h1"]), lay.linear("head", "h1", "_")),
        lambda: numbers(4, 6, 3),
    ),
    "conv": Architecture(
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 2)
        ),
        Symmetry.of(lay.conv("0", "_", "c"), lay.linear("4", "c _hw:4", "_")),
        lambda: numbers(3, 2, 6, 6),
    ),
    "sum": Architecture(
        lambda: Recurrent(
            nn.RNN(3, 4, batch_first=True, nonlinearity="relu", bidirectional=True), 8
        ),
        Symmetry.of(
            lay.elman("core", "_", ["h"], bidirectional=True),
            lay.linear("head", "h | h_reverse", "_"),
        ),
        lambda: numbers(4, 6, 3),
    ),
    "words": Architecture(
        Words,
        Symmetry.of(
            lay.embedding("words", "e"),
            {"up.weight": "e u _", "up.bias": "u"},
            lay.linear("out", "u", "_"),
        ),
        lambda: torch.tensor([[0, 1, 2], [4, 3, 3]]),
    ),
}
WRITTEN = {"words.weight": 1, "up.weight": 1}

SEEDS = st.integers(0, 2**31)


def drawn(architecture, seed):
    """Returns a network, its group, a generator, and random scales of all units."""
    model = architecture.build(seed % 100)
    group = architecture.symmetry.group(model.state_dict())
    generator = np.random.default_rng(seed)
    scales = {name: np.exp(generator.normal(size=n)) for name, n in group.sizes.items()}
    return model, group, generator, scales


def norm(state):
    return float(torch.linalg.vector_norm(flatten(state)))


@pytest.mark.parametrize("kind", RELU)
@settings(max_examples=8)
@given(seed=SEEDS)
def test_scaled_permutations_do_not_change_a_relu_network(kind, seed):
    architecture = RELU[kind]
    model, group, generator, scales = drawn(architecture, seed)
    symmetry = architecture.symmetry
    scaled = scale(symmetry, scales, model.state_dict(), WRITTEN)
    both = symmetry.apply(group.random(generator), scaled)
    expected = architecture.outputs(model)
    torch.testing.assert_close(architecture.outputs(model, both), expected)
    changed = [name for name in scaled if not torch.equal(scaled[name], model.state_dict()[name])]
    assert set(changed) >= set(scaled) - {"head.bias", "4.bias", "out.bias"}


def test_smooth_activations_have_no_such_symmetry():
    architecture = Architecture(
        lambda: nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)),
        Symmetry.of(lay.mlp(["0", "2"], ["_", "h", "_"])),
        lambda: numbers(7, 3),
    )
    model, _, _, scales = drawn(architecture, 0)
    outputs = architecture.outputs(model, scale(architecture.symmetry, scales, model.state_dict()))
    assert float((outputs - architecture.outputs(model)).abs().max()) > 0.01


@settings(max_examples=10)
@given(seed=SEEDS)
def test_scalings_normalize_permutations(seed):
    """P D = D' P with D' = P D P^T, so scaled permutations are a group."""
    architecture = RELU["elman"]
    model, group, generator, scales = drawn(architecture, seed)
    element, state, symmetry = group.random(generator), model.state_dict(), architecture.symmetry
    first = symmetry.apply(element, scale(symmetry, scales, state))
    moved = {name: values[element[name]] for name, values in scales.items()}
    second = scale(symmetry, moved, symmetry.apply(element, state))
    for name in state:
        torch.testing.assert_close(first[name], second[name])


@pytest.mark.parametrize("kind", RELU)
@settings(max_examples=5)
@given(seed=SEEDS)
def test_the_scaling_of_least_norm_is_unique(kind, seed):
    """Every scaling of a model and every start give the same result, which is a fixed point."""
    symmetry = RELU[kind].symmetry
    model, group, generator, scales = drawn(RELU[kind], seed)
    names = tuple(group.sizes)

    def least(state, start=None):
        return scale(
            symmetry, minimal_norm_scales(symmetry, state, names, WRITTEN, start), state, WRITTEN
        )

    state = model.state_dict()
    best = least(state)
    for other in (least(scale(symmetry, scales, state, WRITTEN)), least(state, scales)):
        for name in state:
            torch.testing.assert_close(other[name], best[name], rtol=1e-5, atol=1e-7)
    for values in minimal_norm_scales(symmetry, best, names, WRITTEN).values():
        np.testing.assert_allclose(values, 1.0, rtol=1e-5)
    element = group.random(generator)
    permuted = least(symmetry.apply(element, state))  # Proposition 3: equal up to P alone
    for name, tensor in symmetry.apply(element, best).items():
        torch.testing.assert_close(permuted[name], tensor, rtol=1e-5, atol=1e-7)
    random = [np.exp(generator.normal(0, 0.1, size=n)) for n in map(len, scales.values())]
    near = scale(symmetry, dict(zip(scales, random, strict=True)), best, WRITTEN)
    assert norm(best) < norm(state) and norm(best) < norm(near)


@settings(max_examples=10)
@given(seed=SEEDS)
def test_at_least_norm_written_and_read_weights_have_equal_norms(seed):
    symmetry = RELU["mlp"].symmetry
    state = drawn(RELU["mlp"], seed)[0].state_dict()
    best = scale(symmetry, minimal_norm_scales(symmetry, state, ["h1", "h2"]), state)
    for layer, after in (("0", "2"), ("2", "4")):
        written = best[f"{layer}.weight"].square().sum(1) + best[f"{layer}.bias"].square()
        torch.testing.assert_close(written, best[f"{after}.weight"].square().sum(0), rtol=1e-6,
                                   atol=0.0)  # fmt: skip


def test_one_unit_between_two_weights_has_the_closed_form():
    symmetry = Symmetry.of(lay.mlp(["a", "b"], ["_", "h", "_"], bias=False))
    state = {"a.weight": torch.tensor([[4.0]]), "b.weight": torch.tensor([[9.0]])}
    (d,) = minimal_norm_scales(symmetry, state, ["h"])["h"]
    assert d == pytest.approx(1.5)
    best = scale(symmetry, {"h": [d]}, state)
    assert float(best["a.weight"]) == pytest.approx(6) == float(best["b.weight"])


def test_zero_biases_are_allowed_but_dead_units_are_not():
    """The paper's assumption of nonzero biases is neither necessary nor sufficient."""
    symmetry = RELU["mlp"].symmetry
    state = dict(RELU["mlp"].build().state_dict())
    without = {n: torch.zeros_like(t) if "bias" in n else t for n, t in state.items()}
    assert minimal_norm_scales(symmetry, without, ["h1", "h2"])
    unread = state | {"2.weight": state["2.weight"].clone()}
    unread["2.weight"][:, 3] = 0.0
    with pytest.raises(ScalingError, match=r"1 units \(h1 3\).*reach no output"):
        minimal_norm_scales(symmetry, unread, ["h1", "h2"])


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        ({"h3": np.ones(6)}, "no free name"),
        ({"h1": np.ones(5)}, "Give 6 positive"),
        ({"h1": -np.ones(6)}, "Give 6 positive"),
        ({"h1": np.full(6, np.nan)}, "Give 6 positive"),
    ],
)
def test_invalid_scales_are_explained(scales, message):
    with pytest.raises(ScalingError, match=message):
        scale(RELU["mlp"].symmetry, scales, RELU["mlp"].build().state_dict())
