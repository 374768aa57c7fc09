"""Moments of data, what solves for them, and messages with them."""

import itertools
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from merging_support.problems import WIDE, make_data_holder, maps_of
from scipy.special import softmax
from scipy.stats import multivariate_normal

from fleet_merging.errors import MergeError, MessageError
from fleet_merging.moments.gate import RowGate
from fleet_merging.moments.measurement import (
    LabelledBatch,
    Moments,
    combine,
    measure_moments,
    solve,
)
from fleet_merging.moments.rows import input_rows
from fleet_merging.queries.query import MomentQuery
from fleet_merging.queries.traffic import TrafficMeter
from fleet_merging.queries.validity import checked_moments
from fleet_merging.queries.wire import decode, encode, size

MLP = WIDE["mlp"]
MODEL = MLP.build()
STATE, OTHER = MODEL.state_dict(), MLP.build(1).state_dict()
MAPS = maps_of(MLP)
X = MLP.example()
Y = torch.randn((40, 2), generator=torch.Generator().manual_seed(0)).double()


def batch(rows=slice(None), weights=None):
    return LabelledBatch((X[rows],), Y[rows], weights)


@given(cuts=st.lists(st.integers(1, 39), unique=True, max_size=4))
def test_moments_of_parts_combine_to_those_of_the_whole(cuts):
    """What robots send may be added, so that nobody has to read that of one of them."""
    bounds = [0, *sorted(cuts), 40]
    parts = [slice(a, b) for a, b in itertools.pairwise(bounds)]
    sizes = [(part.stop - part.start) / 40 for part in parts]
    whole = measure_moments(MODEL, [batch()], STATE, ["4"], "labels")["4"]
    by_batch = measure_moments(MODEL, map(batch, parts), STATE, ["4"], "labels")["4"]
    apart = [measure_moments(MODEL, [batch(p)], STATE, ["4"], "labels")["4"] for p in parts]
    for other in (by_batch, combine(apart, sizes)):
        torch.testing.assert_close(other.inputs, whole.inputs)
        torch.testing.assert_close(other.targets, whole.targets)


def test_moments_are_summed_one_after_the_other():
    alive: list[weakref.ref[Moments]] = []

    def each(number: int) -> Moments:
        assert sum(one() is not None for one in alive) <= 1  # the last one
        made = Moments(torch.full((1, 2, 2), float(number)), torch.zeros(1, 2, 0))
        alive.append(weakref.ref(made))
        return made

    total = combine(map(each, range(4)), [1.0, 2.0, 3.0, 4.0])
    assert torch.equal(total.inputs, torch.full((1, 2, 2), 20.0)) and len(alive) == 4


def test_sums_under_masks_are_the_sums_of_moments():
    """Pairwise masks in integers hide each robot's moments and cancel in the sum."""
    parts = [batch(slice(i, i + 10)) for i in range(0, 40, 10)]
    moments = [measure_moments(MODEL, [p], STATE, ["4"], "labels")["4"].inputs for p in parts]
    generator, unit = np.random.default_rng(0), 2.0**-32
    sent = [np.round(each.numpy() / unit).astype(np.int64) for each in moments]
    for i in range(4):
        for j in range(i):
            mask = generator.integers(-(2**62), 2**62, sent[i].shape)
            sent[i], sent[j] = sent[i] + mask, sent[j] - mask  # modulo 2^64
    total = torch.from_numpy(sum(sent) * unit)
    torch.testing.assert_close(total, sum(moments), atol=1e-8, rtol=0)
    assert np.abs(sent[0] * unit - moments[0].numpy()).max() > 1e6


@given(seed=st.integers(0, 99), ridge=st.floats(1e-4, 10))
def test_the_solution_is_that_of_ridge_regression_on_the_rows(seed, ridge):
    """By an independent route: numpy on the rows, with more rows for the prior."""
    generator = np.random.default_rng(seed)
    x = np.pad(generator.normal(size=(30, 4)), ((0, 0), (0, 1)), constant_values=1.0)
    t, prior = generator.normal(size=(30, 2)), generator.normal(size=(5, 2))
    G, C = (torch.from_numpy(x.T @ each / 30)[None] for each in (x, t))
    damping = np.sqrt(ridge * np.square(x).mean() * 30) * np.eye(5)
    expected = np.linalg.lstsq(np.vstack([x, damping]), np.vstack([t, damping @ prior]))[0]
    actual = solve(Moments(G, C), torch.from_numpy(prior)[None], ridge)
    np.testing.assert_allclose(actual[0].numpy(), expected, rtol=1e-6, atol=1e-8)


def test_rows_of_weight_zero_do_not_count():
    weights = (torch.arange(40) < 25).double()
    weighted = measure_moments(MODEL, [batch(weights=weights)], STATE, ["4"], "labels")["4"]
    only = measure_moments(MODEL, [batch(slice(25))], STATE, ["4"], "labels")["4"]
    torch.testing.assert_close(weighted.inputs, only.inputs)
    torch.testing.assert_close(weighted.targets, only.targets)


def test_targets_of_a_teacher_are_its_inputs_and_outputs():
    names = [each.name for each in MAPS]
    inputs = measure_moments(MODEL, [batch()], STATE, names, "inputs", OTHER)
    outputs = measure_moments(MODEL, [batch()], STATE, names, "outputs", OTHER)
    for each in MAPS:
        taught, written = inputs[each.name].targets, outputs[each.name].targets
        torch.testing.assert_close(taught @ each.matrix(OTHER), written)
    own = measure_moments(MODEL, [batch()], STATE, names, "inputs", STATE)
    assert all(torch.equal(each.inputs, each.targets) for each in own.values())


def ask_moments(holder, query, maps):
    return next(TrafficMeter().ask_all_moments([holder], [query], maps))


@pytest.mark.parametrize("target", ["none", "inputs", "outputs", "labels"])
def test_messages_hold_moments_to_single_precision(target):
    teacher = OTHER if target in ("inputs", "outputs") else None
    names = ("4",) if target == "labels" else ("0", "4")
    query = MomentQuery(STATE, names, target, teacher)
    read = decode(encode(query))
    assert (read.maps, read.target, read.teacher is None) == (names, target, teacher is None)
    expected = measure_moments(MODEL, [batch()], STATE, names, target, teacher)
    answered = ask_moments(make_data_holder(MLP, Y), query, MAPS)
    assert size(query) == len(encode(query)) and size(answered) == len(encode(answered))
    for name, each in answered.items():
        torch.testing.assert_close(each.inputs, expected[name].inputs, rtol=1e-6, atol=1e-6)
        assert torch.equal(each.inputs, each.inputs.transpose(1, 2))
        if target != "none":
            torch.testing.assert_close(each.targets, expected[name].targets, rtol=1e-6, atol=1e-6)
    triangle = sum(
        len(expected[name].inputs[0]) * (len(expected[name].inputs[0]) + 1) // 2 for name in names
    )
    rest = 0 if target == "none" else sum(expected[name].targets.numel() for name in names)
    assert 0 < size(answered) - 4 * (triangle + rest) < 500


def test_models_beside_each_other_are_one_with_all_their_units():
    names = ("2", "4")
    query = MomentQuery(STATE, names, "none", beside=(OTHER, STATE))
    moments = ask_moments(make_data_holder(MLP, Y), query, MAPS)
    rows = [input_rows(MODEL, state, (X,), names) for state in (STATE, OTHER, STATE)]
    for each in MAPS:
        if each.name in names:
            joined = torch.cat([one[each.name][0] for one in rows], 1).double()
            x = torch.nn.functional.pad(joined, (0, 1), value=1.0)
            expected = x.T @ x / len(x)
            torch.testing.assert_close(moments[each.name].inputs[0], expected, rtol=1e-5, atol=1e-6)
    foreign = replace(query, beside=({"0.weight": STATE["0.weight"]},))
    with pytest.raises(MessageError, match="another architecture"):
        ask_moments(make_data_holder(MLP, Y), foreign, MAPS)


def a_gate(models: int = 3, size: int = 3, map_name: str = "0") -> RowGate:
    generator = torch.Generator().manual_seed(5)
    factors = torch.eye(size) + 0.3 * torch.rand(models, size, size, generator=generator).tril()
    return RowGate(map_name, torch.randn(models, size, generator=generator), factors, 0.4)


def test_a_gate_weighs_the_units_of_each_model_and_its_own_one():
    gate = a_gate()
    query = MomentQuery(STATE, ("4",), "labels", beside=(OTHER, STATE), gate=gate)
    moments = ask_moments(make_data_holder(MLP, Y), query, MAPS)
    weights = []
    for mean, factor in zip(gate.means.double(), gate.factors.double(), strict=True):
        covariance: Any = np.linalg.inv((factor @ factor.T).numpy())
        density = multivariate_normal(mean.numpy(), covariance)
        weights.append(density.logpdf(X[:, :3].double().numpy()))
    shares = torch.from_numpy(softmax(gate.sharpness * np.stack(weights, 1), 1))
    rows = [
        torch.nn.functional.pad(
            input_rows(MODEL, state, (X,), ("4",))["4"][0].double(), (0, 1), value=1.0
        )
        * shares[:, [index]]
        for index, state in enumerate((STATE, OTHER, STATE))
    ]
    x = torch.nn.functional.pad(torch.cat(rows, 1), (0, 1), value=1.0)
    found = moments["4"]
    torch.testing.assert_close(found.inputs[0], x.T @ x / len(x), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.targets[0], x.T @ Y.double() / len(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("gate", "error", "words"),
    [
        (a_gate(models=2), MessageError, "A gate for 2 models came with 3"),
        (replace(a_gate(), factors=torch.eye(3)), MessageError, "not a query for moments"),
        (replace(a_gate(), sharpness=float("nan")), MessageError, "not a query for moments"),
        (a_gate(size=99), MergeError, "states of 99 numbers"),
        (a_gate(map_name="nowhere"), MergeError, "no affine map nowhere"),
    ],
    ids=["models", "factors", "sharpness", "size", "map"],
)
def test_gates_that_do_not_fit_are_refused(gate, error, words):
    query = MomentQuery(STATE, ("4",), "labels", beside=(OTHER, STATE), gate=gate)
    with pytest.raises(error, match=words):
        ask_moments(make_data_holder(MLP, Y), query, MAPS)


BAD_ANSWERS = {
    "observations": lambda m: {"observations": m["4"]},
    "another map": lambda m: {"4": m["4"], "0": m["0"]},
    "nothing": lambda m: {},
    "infinity": lambda m: {"4": Moments(m["4"].inputs * torch.inf, m["4"].targets)},
    "another size": lambda m: {"4": m["0"]},
    "targets": lambda m: {"4": Moments(m["4"].inputs, m["4"].inputs)},
}


@pytest.mark.parametrize("kind", BAD_ANSWERS)
def test_answers_with_anything_else_are_refused(kind):
    moments = measure_moments(MODEL, [batch()], STATE, ["0", "4"], "none")
    query = MomentQuery(STATE, ("4",))
    found, _ = checked_moments(decode(encode({"4": moments["4"]})), query, maps=MAPS)
    assert list(found) == ["4"]
    answer = BAD_ANSWERS[kind](moments)
    for arrived in (answer, decode(encode(answer))):  # in this process, and from another
        with pytest.raises(MessageError):
            checked_moments(arrived, query, maps=MAPS)


def test_a_holder_without_batches_or_labels_says_so():
    query = MomentQuery(STATE, ("4",), "labels")
    holder = make_data_holder(MLP, Y)
    with pytest.raises(MessageError, match="cannot measure moments"):
        ask_moments(replace(holder, batches=None), query, MAPS)
    with pytest.raises(MergeError, match="there are none labels"):
        ask_moments(replace(holder, batches=lambda: [LabelledBatch((X,))]), query, MAPS)
    with pytest.raises(MergeError, match="No data reached"):
        ask_moments(replace(holder, batches=lambda: []), query, MAPS)
    with pytest.raises(MessageError, match="another architecture"):
        ask_moments(holder, replace(query, model={"0.weight": STATE["0.weight"]}), MAPS)
    with pytest.raises(MergeError, match="no affine map 9"):
        measure_moments(MODEL, [batch()], STATE, ["9"], "none")


def test_noise_is_the_same_for_the_same_query_and_of_the_given_size():
    query = MomentQuery(STATE, ("2",), "outputs", OTHER)
    holder = make_data_holder(MLP, Y)
    exact = ask_moments(holder, query, MAPS)["2"]
    noisy = replace(holder, noise=0.1, noise_seed=3)
    first, second = (ask_moments(noisy, query, MAPS)["2"] for _ in range(2))
    assert torch.equal(first.inputs, second.inputs) and torch.equal(first.targets, second.targets)
    assert torch.equal(first.inputs, first.inputs.transpose(1, 2))
    for one, other in ((first.inputs, exact.inputs), (first.targets, exact.targets)):
        size = (one - other).square().mean().sqrt() / other.square().mean().sqrt()
        assert 0.08 < size < 0.12
    other = ask_moments(replace(noisy, noise_seed=4), query, MAPS)["2"]
    assert not torch.equal(first.inputs, other.inputs)
