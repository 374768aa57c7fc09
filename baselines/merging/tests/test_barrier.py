"""Barriers and averages by the paper's definitions, on known curves."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fleet_merging.average import average, interpolate
from fleet_merging.barrier import (
    Barrier,
    curve,
    loss_barrier,
    norm_ratios,
)
from fleet_merging.errors import MergeError, ModelMismatchError
from fleet_merging.modules import recompute

NUMBERS = st.floats(-10, 10)


def point(*values):
    return {"x": torch.tensor(values, dtype=torch.float64)}


def parabola(state):
    return float(state["x"].square().sum())


def hill(state):
    return float(1 - state["x"].square().sum())


@given(NUMBERS, NUMBERS)
def test_a_convex_loss_has_a_barrier_at_its_ends(a, b):
    barrier = loss_barrier(parabola, point(a), point(b))
    assert barrier.height == pytest.approx(abs(a * a - b * b) / 2, abs=1e-9)
    if abs(a * a - b * b) > 1e-6:
        assert barrier.at == float(b * b > a * a)


def test_the_barrier_between_two_minima_is_the_height_of_the_hill():
    barrier = loss_barrier(hill, point(-1.0), point(1.0), points=5)
    assert (barrier.height, barrier.at) == (1.0, 0.5)
    assert barrier.lambdas == (0, 0.25, 0.5, 0.75, 1) and barrier.values == (0, 0.75, 1, 0.75, 0)


@given(NUMBERS, NUMBERS)
def test_performance_is_a_loss_with_its_sign_flipped(a, b):
    one, other = point(a, 1.0), point(b, -1.0)
    loss = loss_barrier(lambda state: -hill(state), one, other)
    performance = Barrier.of_performances(*curve(hill, one, other))
    assert performance.height == pytest.approx(loss.height)
    assert performance.values == tuple(-value for value in loss.values)


def test_equal_models_have_no_barrier():
    assert loss_barrier(parabola, point(2.0), point(2.0)).height == pytest.approx(0.0)


def test_a_loss_of_nan_gives_a_barrier_of_nan():
    def broken(state):
        return np.nan if 0.3 < float(state["x"]) < 0.5 else 0.0

    assert np.isnan(loss_barrier(broken, point(0.0), point(1.0)).height)


@pytest.mark.parametrize("points", [1, 2, 10])
def test_a_curve_without_its_midpoint_is_refused(points):
    with pytest.raises(MergeError, match="odd number"):
        curve(parabola, point(0.0), point(1.0), points)


@given(st.lists(st.tuples(NUMBERS, st.floats(0.01, 5)), min_size=1, max_size=5))
def test_averages_are_weighted(items):
    values, weights = zip(*items, strict=True)
    mean = average([point(value) for value in values], weights)
    assert float(mean["x"]) == pytest.approx(np.average(values, weights=weights), abs=1e-9)


def test_averages_keep_dtypes_and_share_no_memory():
    one = {"h": torch.ones(2).half(), "n": torch.tensor(3), "mask": torch.tensor([True, False])}
    other = {"h": torch.zeros(2).half(), "n": torch.tensor(6), "mask": one["mask"].clone()}
    mean = average([one, other])
    assert {name: tensor.dtype for name, tensor in mean.items()} == {
        name: tensor.dtype for name, tensor in one.items()
    }
    assert int(mean["n"]) == 4  # 4.5, to even
    alone = average([one])
    for name in one:
        assert alone[name].data_ptr() != one[name].data_ptr()
    with pytest.raises(ModelMismatchError, match="mask is a mask"):
        average([one, other | {"mask": torch.tensor([True, True])}])


@pytest.mark.parametrize(
    ("weights", "message"),
    [([1.0], "Give 2 numbers"), ([1, -1], "none below 0"), ([0, 0], "sum to 0")],
)
def test_invalid_averaging_weights_are_refused(weights, message):
    with pytest.raises(MergeError, match=message):
        average([point(0.0), point(1.0)], weights)


def test_a_model_beyond_the_ends_is_refused():
    with pytest.raises(MergeError, match="not between"):
        interpolate(point(0.0), point(1.0), 1.5)
    with pytest.raises(MergeError, match="no models"):
        average([])


def test_batch_norm_statistics_are_measured_again():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    inputs = torch.randn(500, 3)
    state = recompute(model, before, [inputs])
    with torch.no_grad():
        hidden = model[0](inputs)
    torch.testing.assert_close(state["1.running_mean"], hidden.mean(0))
    torch.testing.assert_close(state["1.running_var"], hidden.var(0))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    untouched = recompute(model, before, [])
    assert all(torch.equal(untouched[name], before[name]) for name in before)


@given(st.floats(0.1, 10), st.integers(0, 99))
def test_the_ratio_of_norms_ignores_the_order_of_units_and_that_of_differences_does_not(
    scale, seed
):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(6, 4, generator=generator)
    first = {"w": weights, "steps": torch.tensor(3), "zero": torch.zeros(2)}
    second = {**first, "w": scale * weights.flip(0), "zero": torch.ones(2)}
    ratios = norm_ratios(first, second)
    assert ratios.keys() == {"w"}  # no ratio of counts, nor to a norm of zero
    assert ratios["w"].of_norms == pytest.approx(abs(scale - 1), abs=1e-6)
    flat, other = weights.double().numpy(), second["w"].double().numpy()
    expected = np.sqrt(((other - flat) ** 2).sum() / (flat**2).sum())
    assert ratios["w"].of_difference == pytest.approx(expected)
    assert ratios["w"].of_difference >= ratios["w"].of_norms - 1e-9
