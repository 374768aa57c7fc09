"""The epsilon of noise, by the exact privacy of Gaussian noise and of sampled pairs of fleets."""

import math
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("dp_accounting")

from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import norm

from fleet_tools.baselines.federated.privacy.accounting import epsilon, noise_multiplier_for
from fleet_tools.errors import ConfigError

MULTIPLIERS = st.floats(0.3, 100)
ROUNDS = st.integers(1, 200)
DELTAS = st.floats(1e-10, 1e-2)


def everyone(noise_multiplier: float, rounds: int, delta: float, robots: int = 50) -> float:
    """Returns the epsilon if all robots take part in each round."""
    return epsilon(noise_multiplier, robots=robots, participants=robots, rounds=rounds, delta=delta)


def exact(noise_multiplier: float, rounds: int, delta: float) -> float:
    """Returns the exact epsilon of Gaussian noise (Balle and Wang 2018, Theorem 8).

    Replacing a robot whose change has the norm C moves the sum by 2 C in each round.
    """
    mean = 2 * math.sqrt(rounds) / noise_multiplier

    def excess(candidate: float) -> float:
        upper = norm.cdf(mean / 2 - candidate / mean)
        return (
            float(upper) - math.exp(candidate + norm.logcdf(-mean / 2 - candidate / mean)) - delta
        )

    if excess(0.0) <= 0:
        return 0.0
    return cast(float, brentq(excess, 0.0, mean**2 / 2 + 10 * mean + 10))


@given(noise_multiplier=MULTIPLIERS, rounds=ROUNDS, delta=DELTAS)
def test_without_sampling_it_is_the_best_bound_over_all_orders(noise_multiplier, rounds, delta):
    def bound(log_order: float) -> float:
        order = 1.01 + math.exp(log_order)
        renyi = rounds * order * 2 / noise_multiplier**2
        return renyi + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)

    minimum: Any = minimize_scalar(bound, bounds=(-6, 8), method="bounded")
    best = minimum.fun
    found = everyone(noise_multiplier, rounds, delta)
    assert max(best, 0) * (1 - 1e-6) <= found <= max(best, 0) * 1.05 + 1e-3


@given(noise_multiplier=MULTIPLIERS, rounds=ROUNDS, delta=DELTAS)
def test_without_sampling_it_is_not_less_than_exact_and_not_much_more(
    noise_multiplier, rounds, delta
):
    true = exact(noise_multiplier, rounds, delta)
    found = everyone(noise_multiplier, rounds, delta)
    assert true * (1 - 1e-6) <= found <= 1.4 * true + 0.1


@pytest.mark.parametrize("noise_multiplier", [0.7, 2.0, 6.0])
@pytest.mark.parametrize("participants", [10, 50, 90])
def test_pairs_of_sampled_fleets_are_no_easier_to_tell_apart(noise_multiplier, participants):
    robots, delta = 100, 1e-4
    found = epsilon(
        noise_multiplier, robots=robots, participants=participants, rounds=1, delta=delta
    )
    share = participants / robots
    x = np.linspace(-12, 12, 200_001) * noise_multiplier
    # The sum of a round in units of C: one robot's change is 1 or -1, all others are 0, or 1.
    for other in (0.0, 1.0):
        densities = [
            share * norm.pdf(x, one, noise_multiplier)
            + (1 - share) * norm.pdf(x, other, noise_multiplier)
            for one in (1.0, -1.0)
        ]
        for first, second in (densities, densities[::-1]):
            excess = np.maximum(first - math.exp(found) * second, 0)
            assert np.trapezoid(excess, x) <= delta


@given(noise_multiplier=MULTIPLIERS, rounds=ROUNDS, delta=DELTAS, factor=st.floats(1, 10))
def test_it_grows_with_rounds_and_falls_with_noise_and_delta(
    noise_multiplier, rounds, delta, factor
):
    found = everyone(noise_multiplier, rounds, delta)
    assert found <= everyone(noise_multiplier, rounds + 1, delta)
    assert found >= everyone(factor * noise_multiplier, rounds, delta)
    assert found >= everyone(noise_multiplier, rounds, min(factor * delta, 0.5))
    assert found == everyone(noise_multiplier, rounds, delta, robots=1000)


def test_it_grows_with_participants_and_rounds_where_robots_are_sampled():
    counts = [1, 10, 100, 500, 700, 1000]
    by_count = [
        epsilon(8.0, robots=1000, participants=count, rounds=10, delta=1e-5) for count in counts
    ]
    assert by_count == sorted(by_count) and by_count[0] < by_count[3] < by_count[-1]
    longer = epsilon(8.0, robots=1000, participants=100, rounds=20, delta=1e-5)
    assert by_count[2] < longer


def test_no_noise_has_no_bound_and_no_round_reveals_nothing():
    for noise_multiplier in (0.0, 1e-300):
        assert epsilon(noise_multiplier, robots=9, participants=3, rounds=1, delta=0.1) == math.inf
    assert epsilon(0.0, robots=9, participants=3, rounds=0, delta=0.1) == 0
    assert epsilon(1e300, robots=9, participants=3, rounds=1, delta=1e-5) < 1e-6


@settings(max_examples=20)
@given(target=st.floats(0.05, 1000), rounds=ROUNDS, delta=DELTAS)
def test_the_noise_for_an_epsilon_gives_it(target, rounds, delta):
    arguments = {"robots": 20, "participants": 20, "rounds": rounds, "delta": delta}
    found = noise_multiplier_for(target, **arguments)
    assert epsilon(found, **arguments) <= target
    assert found < 0.002 or epsilon(found - 0.002, **arguments) > target


@pytest.mark.slow
def test_the_noise_for_an_epsilon_of_sampled_robots_gives_it():
    arguments = {"robots": 10_000, "participants": 500, "rounds": 10, "delta": 1e-5}
    found = noise_multiplier_for(8.0, **arguments)
    assert epsilon(found, **arguments) <= 8 < epsilon(found - 0.002, **arguments)


@pytest.mark.parametrize(
    ("noise_multiplier", "changed"),
    [
        (-1.0, {}),
        (math.nan, {}),
        (math.inf, {}),
        (1.0, {"participants": 0}),
        (1.0, {"participants": 11}),
        (1.0, {"rounds": -1}),
        (1.0, {"delta": 0.0}),
        (1.0, {"delta": 1.0}),
        (1.0, {"delta": math.nan}),
    ],
)
def test_what_is_out_of_range_is_refused(noise_multiplier, changed):
    arguments = {"robots": 10, "participants": 2, "rounds": 3, "delta": 1e-5} | changed
    with pytest.raises(ConfigError, match="expected"):
        epsilon(noise_multiplier, **arguments)
    if changed:
        with pytest.raises(ConfigError, match="expected"):
            noise_multiplier_for(1.0, **arguments)


@pytest.mark.parametrize(("target", "rounds"), [(0.0, 1), (-1, 1), (math.nan, 1), (1.0, 0)])
def test_a_target_that_no_noise_meets_is_refused(target, rounds):
    with pytest.raises(ConfigError, match="positive"):
        noise_multiplier_for(target, robots=10, participants=2, rounds=rounds, delta=1e-5)
