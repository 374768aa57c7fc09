"""Mixtures of states, or of pairs of states: drawing from them, asking for them, and lies."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from merging_support.problems import WIDE, make_data_holder

from fleet_merging.errors import MergeError, MessageError
from fleet_merging.moments.mixture import (
    LEAST_EPISODES,
    LIMIT,
    StateMixture,
    _clusters,
    measure_mixture,
)
from fleet_merging.queries import wire
from fleet_merging.queries.query import MixtureQuery
from fleet_merging.queries.traffic import DataHolderError, TrafficMeter

A = torch.tensor([[0.9, 0.3, 0.0], [-0.3, 0.9, 0.0], [0.0, 0.0, 0.5]], dtype=torch.float64)
OFFSET = torch.tensor([0.1, 0.0, 1.0], dtype=torch.float64)


def linear_episodes(count: int, steps: int = 25) -> list[torch.Tensor]:
    """Returns episodes of x' = A x + offset + noise, which begin with a state of mean (2, 0, 0)."""
    generator = torch.Generator().manual_seed(0)
    start = torch.tensor([2.0, 0.0, 0.0], dtype=torch.float64)
    noise = torch.randn(steps, count, 3, generator=generator).double()
    states = [start + 0.3 * noise[0]]
    for each in noise[1:]:
        states.append(states[-1] @ A.T + OFFSET + 0.3 * each)
    return list(torch.stack(states, 1).float())


def covariance(rows: torch.Tensor) -> np.ndarray:
    return np.cov(rows.reshape(-1, rows.shape[-1]).T)


def test_drawn_states_have_the_means_and_covariances_of_the_data():
    episodes = linear_episodes(400)
    drawn = measure_mixture(episodes, 6, 0).states(20_000, torch.Generator().manual_seed(1))
    data = torch.cat([each[:-1] for each in episodes])  # first states of pairs
    np.testing.assert_allclose(drawn.mean(0), data.mean(0), atol=0.05)
    np.testing.assert_allclose(covariance(drawn), covariance(data), atol=0.06)


@pytest.mark.parametrize("count", [2, 9])
def test_drawn_sequences_move_as_the_data_step_by_step(count):
    """By another route: moments at each step, and of pairs that are two steps apart."""
    episodes = torch.stack(linear_episodes(600))
    mixture = measure_mixture(list(episodes), count, 0)
    assert mixture.steps == episodes.shape[1]
    drawn = mixture.sequences(4000, episodes.shape[1], torch.Generator().manual_seed(1))
    np.testing.assert_allclose(drawn.mean(0), episodes.mean(0), atol=0.35)  # of -2 to 2
    found, expected = (
        covariance(torch.cat([each[:, :-2], each[:, 2:]], -1)) for each in (drawn, episodes)
    )
    np.testing.assert_allclose(found, expected, atol=0.15)


def test_a_rare_task_keeps_its_name_in_all_of_a_sequence():
    """As one-hots and masks say which task it is: no sequence is of something between tasks."""
    names = (
        4 * torch.eye(3)[[0] * 37 + [1] * 8 + [2] * LEAST_EPISODES]
    )  # scaled, as policies read them
    episodes = [
        torch.cat([name.expand(20, 3), each[:20]], 1)
        for name, each in zip(names, linear_episodes(50), strict=True)
    ]
    drawn = measure_mixture(episodes, 4, 0).sequences(500, 40, torch.Generator().manual_seed(0))
    named = drawn[..., :3].argmax(-1)
    assert (named == named[:, :1]).all() and set(named.unique().tolist()) == {0, 1, 2}
    torch.testing.assert_close(drawn[..., :3], 4 * torch.eye(3)[named], rtol=0, atol=1e-3)


def test_sequences_stay_where_the_data_were_although_their_changes_grow():
    """Each state is 1.2 times the one before; and so it would go on."""
    growing = [1.2 ** torch.arange(8.0)[:, None] * (1 + 0.1 * k) for k in range(20)]
    drawn = measure_mixture(growing, 3, 0).sequences(50, 60, torch.Generator().manual_seed(0))
    assert torch.isfinite(drawn).all() and drawn.abs().max() < 3 * max(map(torch.max, growing))


def test_a_blow_is_clipped_before_it_is_measured():
    episodes = linear_episodes(20)
    episodes[3][7, 1] = 3e4
    mixture = measure_mixture(episodes, 4, 0)
    assert mixture.means.abs().max() <= LIMIT
    assert mixture.states(1000, torch.Generator().manual_seed(0)).abs().max() < 6 * LIMIT


def test_the_same_question_has_the_same_answer_and_more_gaussians_than_states_are_no_error():
    episodes = linear_episodes(LEAST_EPISODES, steps=3)
    one, again = (measure_mixture(episodes, 50, 3) for _ in range(2))
    for name in ("weights", "means", "covariances"):
        assert torch.equal(getattr(one, name), getattr(again, name))
    assert len(one.weights) == 2 and float(one.weights.sum()) == pytest.approx(1)
    two_steps = measure_mixture([each[:2] for each in episodes], 50, 3)
    assert len(two_steps.weights) == 1 and two_steps.steps == 2
    assert two_steps.sequences(2, 5, torch.Generator()).shape == (2, 5, 3)


def test_along_axes_states_are_what_they_are_in_fewer_numbers():
    """Twelve numbers, of very different sizes, that three determine; and three that none does."""
    generator = torch.Generator().manual_seed(5)
    mixing = torch.randn(3, 12, generator=generator) * 10.0 ** torch.linspace(-3, 0, 12)
    seen = [each @ mixing for each in linear_episodes(300)]
    mixture = measure_mixture(seen, 6, 0, rank=3)
    assert mixture.means.shape[1] == 6 and mixture.size == 12
    drawn = mixture.sequences(2000, 25, torch.Generator().manual_seed(1))
    found, data = (each.reshape(-1, 12) / mixing.norm(dim=0) for each in (drawn, torch.stack(seen)))
    np.testing.assert_allclose(found.mean(0), data.mean(0), atol=0.15)
    np.testing.assert_allclose(covariance(found), covariance(data), atol=0.15)
    inside = drawn.reshape(-1, 12) @ torch.linalg.pinv(mixing) @ mixing
    torch.testing.assert_close(inside, drawn.reshape(-1, 12), rtol=1e-3, atol=1e-3)
    constant = [torch.cat([each, torch.zeros(len(each), 3)], 1) for each in linear_episodes(20)]
    still = measure_mixture(constant, 4, 0, rank=3).states(50, torch.Generator().manual_seed(0))
    assert torch.isfinite(still).all() and still[:, 3:].abs().max() < 1e-6


@pytest.mark.parametrize("rank", [0, 2])
def test_without_next_states_gaussians_are_the_marginals_of_those_of_pairs(rank):
    pairs, states = (
        measure_mixture(linear_episodes(40), 4, 0, rank, consecutive=consecutive)
        for consecutive in (True, False)
    )
    n = rank or 3
    assert torch.equal(states.weights, pairs.weights) and states.size == pairs.size == 3
    torch.testing.assert_close(states.means, pairs.means[:, :n])
    torch.testing.assert_close(states.covariances, pairs.covariances[:, :n, :n])
    assert states.steps == pairs.steps
    assert wire.size(states) < wire.size(pairs)


@pytest.mark.parametrize("rank", [3, 0, 7])
def test_as_many_axes_as_numbers_are_the_numbers(rank):
    episodes = linear_episodes(9)
    one, whole = measure_mixture(episodes, 4, 0, rank), measure_mixture(episodes, 4, 0)
    assert one.axes is None and torch.equal(one.covariances, whole.covariances)


AXES: Any = measure_mixture(linear_episodes(9), 4, 0, rank=2)


@pytest.mark.parametrize(
    "lie",
    [
        replace(AXES, axes=AXES.axes[:, :1]),
        replace(AXES, axes=AXES.axes[0]),
        replace(AXES, axes=AXES.axes.double()),
        replace(AXES, axes=AXES.axes * torch.inf),
        measure_mixture(linear_episodes(9), 4, 0, rank=1),
    ],
)
def test_liars_about_axes_are_refused_by_name(lie):
    (honest,) = TrafficMeter().ask_mixtures([Answering(AXES)], [MixtureQuery(4, 0, 2)])
    assert honest is AXES
    with pytest.raises(DataHolderError):
        list(TrafficMeter().ask_mixtures([Answering(lie)], [MixtureQuery(4, 0, 2)]))


class Answering:
    """A data holder that always answers the same."""

    def __init__(self, answer):
        self.answer = lambda query: answer


@settings(deadline=None)
@given(
    steps=st.lists(st.integers(2, 9), min_size=LEAST_EPISODES, max_size=30),
    count=st.integers(1, 20),
    spread=st.sampled_from([0.0, 1e-3, 1.0, 1e3]),
    seed=st.integers(0, 99),
)
def test_each_gaussian_describes_enough_episodes(steps, count, spread, seed):
    """By another route: every state says its episode, by which each Gaussian's are counted."""
    places = torch.randn(len(steps), 2, generator=torch.Generator().manual_seed(seed)) * spread
    episodes = [place.expand(own, 2) for place, own in zip(places, steps, strict=True)]
    pairs = torch.cat([each[:-1] for each in episodes]).double()
    numbers = np.repeat(np.arange(len(steps)), [own - 1 for own in steps])
    for own, of in _clusters(torch.cat([pairs, pairs], 1), numbers, count, seed):
        within = (own[:, None, :2] == pairs).all(-1).any(0)
        assert spread == 0 or np.array_equal(np.unique(of), np.unique(numbers[within]))
        assert len(np.unique(of)) >= LEAST_EPISODES
    mixture = measure_mixture(episodes, count, seed)
    assert len(mixture.weights) <= 2 * (len(steps) // LEAST_EPISODES)
    assert float(mixture.weights.sum()) == pytest.approx(1)


@pytest.mark.parametrize(
    "episodes",
    [
        [],
        [torch.zeros(1, 3)] * 9,
        [torch.full((4, 3), torch.nan)] * LEAST_EPISODES,
        linear_episodes(LEAST_EPISODES - 1),
    ],
)
def test_no_mixture_of_no_data(episodes):
    with pytest.raises(MergeError, match="two or more finite states"):
        measure_mixture(episodes, 4, 0)


def holder(**fields):
    local = make_data_holder(WIDE["mlp"], torch.zeros(40, 2))
    return replace(local, episodes=lambda model: linear_episodes(5), **fields)


def test_a_mixture_arrives_as_it_was_sent():
    mixture = measure_mixture(linear_episodes(9), 4, 0)
    along_axes = measure_mixture(linear_episodes(9), 4, 0, rank=2)
    states = measure_mixture(linear_episodes(9), 4, 0, consecutive=False)
    queries = MixtureQuery(4, 7), MixtureQuery(4, 7, 2), MixtureQuery(4, 7, consecutive=False)
    for value in (mixture, along_axes, states, *queries):
        message = wire.encode(value)
        assert wire.size(value) == len(message)
        arrived = wire.decode(message)
        for name, sent in vars(value).items():
            got = getattr(arrived, name)
            assert torch.equal(got, sent) if isinstance(sent, torch.Tensor) else got == sent
    meter = TrafficMeter()
    (asked,) = meter.ask_mixtures([holder()], [MixtureQuery(4, 7)])
    assert meter.traffic.uploaded_bytes == wire.size(asked)


@pytest.mark.parametrize("fields", [{"noise": 0.1}, {"episodes": None}])
def test_who_has_none_or_adds_noise_gives_none(fields):
    with pytest.raises(MessageError, match="cannot fit a mixture"):
        replace(holder(), **fields).answer(MixtureQuery(4, 0))


@pytest.mark.parametrize("query", [(0, 0), (4, -1), (10**6, 0), (4, 0, -1)])
def test_impossible_questions_are_refused_where_they_arrive(query):
    with pytest.raises(MessageError, match="Gaussians"):
        wire.decode(wire.encode(MixtureQuery(*query)))


HONEST = measure_mixture(linear_episodes(9), 4, 0)


@pytest.mark.parametrize(
    "lie",
    [
        "not a mixture",
        replace(HONEST, starts=0),
        replace(HONEST, starts=9),
        replace(HONEST, weights=torch.eye(len(HONEST.weights))[-1].clamp(min=1e-30)),
        replace(HONEST, weights=HONEST.weights * 2),
        replace(HONEST, weights=-HONEST.weights),
        replace(HONEST, weights=HONEST.weights[:2]),
        replace(HONEST, means=HONEST.means * torch.nan),
        replace(HONEST, means=HONEST.means[0]),
        replace(HONEST, means=HONEST.means.double()),
        replace(HONEST, means=HONEST.means[:, :5], covariances=HONEST.covariances[:, :5, :5]),
        replace(HONEST, covariances=-HONEST.covariances),
        replace(HONEST, covariances=HONEST.covariances[:, :3]),
        replace(HONEST, axes=torch.ones(5, 3)),  # none were asked for
        replace(HONEST, consecutive=False),
        measure_mixture(linear_episodes(9), 4, 0, consecutive=False),
        StateMixture(1, torch.full((9,), 1 / 9), torch.zeros(9, 6), torch.zeros(9, 6, 6)),
    ],
)
def test_liars_are_refused_by_name(lie):
    liar = Answering(lie)
    with pytest.raises(DataHolderError) as error:
        list(TrafficMeter().ask_mixtures([liar], [MixtureQuery(4, 0)]))
    assert error.value.holder is liar


def test_pairs_are_refused_where_states_were_asked_for():
    with pytest.raises(DataHolderError, match="m = n,"):
        query = MixtureQuery(4, 0, consecutive=False)
        list(TrafficMeter().ask_mixtures([Answering(HONEST)], [query]))
