"""What a data holder answers: losses and their gradients; and what passes as honest."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from merging_support.problems import WIDE, make_data_holder, maps_of

from fleet_merging.errors import MessageError
from fleet_merging.moments.measurement import Moments, with_noise
from fleet_merging.moments.mixture import measure_mixture
from fleet_merging.queries.data_holder import LocalDataHolder
from fleet_merging.queries.query import (
    MixtureQuery,
    MomentQuery,
    in_single_precision,
)
from fleet_merging.queries.traffic import TrafficMeter
from fleet_merging.queries.validity import (
    LARGEST_RATIO,
    Limits,
    checked_mixture,
    checked_moments,
    outlier,
)

MLP = WIDE["mlp"]


def ask(holder, model, seed, gradient=True):
    return TrafficMeter().ask(holder, model, seed, gradient)


def test_the_gradient_of_an_answer_is_that_of_the_loss():
    local = make_data_holder(MLP, torch.ones(40, 2))
    state = MLP.build(3).state_dict()
    answer = ask(local, state, seed=5)
    name, step = "2.weight", 1e-6
    direction = torch.randn_like(state[name])
    up, down = (
        ask(local, state | {name: state[name] + sign * step * direction}, 5, gradient=False).loss
        for sign in (1, -1)
    )
    slope = float((answer.gradient[name] * direction).sum())
    assert slope == pytest.approx((up - down) / (2 * step), rel=1e-4)
    assert ask(local, state, 5).loss == answer.loss != ask(local, state, 6).loss
    everything = ask(local, state, None).loss
    assert everything == ask(local, state, None).loss


def test_buffers_and_unused_parameters_have_no_gradients():
    class Policy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.unused = torch.nn.BatchNorm1d(2), torch.nn.Linear(1, 1)

        def forward(self, x):
            return self.norm(x)

    for training in (True, False):
        policy = Policy().train(training)
        before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
        inputs = torch.arange(8.0).reshape(4, 2)
        local = LocalDataHolder(policy, lambda policy, seed, x=inputs: (policy(x) * x).sum())
        answer = ask(local, before, 0)
        assert set(answer.gradient) == {"norm.weight", "norm.bias"}
        assert all(torch.equal(t, before[name]) for name, t in policy.state_dict().items())


def test_tied_weights_are_differentiated_once():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, False))
    model[1].weight = model[0].weight
    local = LocalDataHolder(model, lambda policy, seed: policy(torch.ones(1, 3)).sum())
    answer = ask(local, model.state_dict(), 0)
    assert set(answer.gradient) == {"0.weight"}
    (expected,) = torch.autograd.grad(model(torch.ones(1, 3)).sum(), list(model.parameters()))
    torch.testing.assert_close(answer.gradient["0.weight"], expected)


def test_a_query_about_another_architecture_is_refused():
    local = make_data_holder(MLP, torch.ones(40, 2))
    with pytest.raises(MessageError, match=r"another architecture .*: 0\.bias"):
        ask(local, WIDE["elman"].build().state_dict(), 0)


SCALES = st.sampled_from([0.0, 1e-30, 1e-19, 1e-6, 1e-3, 1.0, 1.0, 1.0, 30.0, 1e3, 1e6])


@st.composite
def rows_of_data(draw: st.DrawFn, size: int) -> Any:
    """Draws rows of numbers of any scale, constant, far from 0, or equal to others."""
    count, seed = draw(st.sampled_from([1, 2, 5, 40])), draw(st.integers(0, 2**31))
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, size, generator=generator).double()
    rows = rows * torch.tensor(draw(st.lists(SCALES, min_size=size, max_size=size)))
    rows = rows + torch.tensor(draw(st.lists(SCALES, min_size=size, max_size=size)))
    copied = torch.tensor(draw(st.lists(st.integers(0, size - 1), min_size=size, max_size=size)))
    return rows[:, copied] if draw(st.booleans()) else rows


@given(
    rows=rows_of_data(24),
    extreme=st.booleans(),
    noise=st.sampled_from([0.0, 0.0, 1e-4, 1e-2, 1.0]),
    seed=st.integers(0, 2**31),
)
def test_moments_of_any_data_are_taken(rows, extreme, noise, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = 2 * torch.rand(len(rows), 2, generator=generator).double() - 1
    labels = labels.sign() if extreme else labels
    inputs = torch.nn.functional.pad(rows, (0, 1), value=1.0)
    query = MomentQuery(MLP.build(3).state_dict(), ("4",), "labels")
    exact = Moments((inputs.T @ inputs / len(rows))[None], (inputs.T @ labels / len(rows))[None])
    noisy = with_noise({"4": exact}, noise, (seed,))["4"] if noise else exact
    answer = {"4": in_single_precision(noisy)}
    limits = Limits(noise=noise, label=1.0)
    found, sizes = checked_moments(answer, query, limits, maps=maps_of(MLP))
    assert torch.equal(found["4"].inputs, answer["4"].inputs)
    assert all(map(math.isfinite, sizes.values()))


@given(
    rows=rows_of_data(4),
    steps=st.lists(st.integers(2, 9), min_size=5, max_size=20),
    count=st.integers(1, 9),
    rank=st.integers(0, 3),
    seed=st.integers(0, 99),
    consecutive=st.booleans(),
)
def test_mixtures_of_any_data_are_taken(rows, steps, count, rank, seed, consecutive):
    generator = torch.Generator().manual_seed(seed)
    episodes = [rows[torch.randint(len(rows), (own,), generator=generator)] for own in steps]
    mixture = measure_mixture(episodes, count, seed, rank, consecutive=consecutive)
    query = MixtureQuery(count, seed, rank, consecutive=consecutive)
    checked_mixture(mixture, query, Limits(steps=sum(steps)))


@given(
    honest=st.lists(st.floats(0, LARGEST_RATIO), min_size=1, max_size=9),
    lie=st.floats(0, allow_nan=False),
    place=st.integers(0, 9),
)
def test_no_lie_leaves_an_honest_one_out_and_a_huge_one_its_sender(honest, lie, place):
    sizes = [{"size": each} for each in honest]
    assert outlier(sizes) is None
    sizes.insert(place, {"size": lie})
    found = outlier(sizes)
    assert found is None or sizes[found[0]]["size"] == lie > LARGEST_RATIO
    if lie > LARGEST_RATIO * max(1.0, *honest):
        assert found is not None
