"""Distributions: samples, nominal values, round trips and messages."""

import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleet_tools.config.distributions import (
    Choice,
    Distribution,
    OneOf,
    Uniform,
    bounds,
    nominal,
    sample,
)
from fleet_tools.config.values import Value, parse
from fleet_tools.errors import ConfigError

floats = st.floats(allow_nan=False, allow_infinity=False)
uniforms = st.builds(lambda a, b: Uniform(uniform=(min(a, b), max(a, b))), floats, floats)
choices = st.lists(floats, min_size=1).map(lambda options: Choice(choice=tuple(options)))
several = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8, unique=True).map(
    lambda ends: OneOf(one_of=tuple(zip(sorted(ends)[::2], sorted(ends)[1::2], strict=False)))
)
distributions = floats | uniforms | choices | several
seeds = st.integers(0, 2**63)


class Holder(Value):
    number: Distribution


def is_possible(distribution: Distribution, number: object) -> bool:
    match distribution:
        case Uniform(uniform=(low, high)):
            return isinstance(number, float) and low <= number <= high
        case Choice(choice=options):
            return number in options
        case OneOf(one_of=intervals):
            return isinstance(number, float) and any(a <= number <= b for a, b in intervals)
    return number == distribution


WIDEST = Uniform(uniform=(-1.7e308, 1.7e308))
HIGHEST = Uniform(uniform=(1.6e308, 1.7e308))


@given(distributions, seeds)
@example(WIDEST, 0)
def test_samples_are_possible_and_within_the_bounds(distribution, seed):
    number = sample(distribution, np.random.default_rng(seed))
    low, high = bounds(distribution)
    assert is_possible(distribution, number) and low <= float(number) <= high
    assert is_possible(distribution, low) and is_possible(distribution, high)


@given(distributions)
@example(HIGHEST)
def test_the_nominal_number_is_possible(distribution):
    assert is_possible(distribution, nominal(distribution))


@given(distributions, seeds)
def test_a_sample_is_a_function_of_the_generator_and_consumes_one_draw(distribution, seed):
    one, other, fresh = (np.random.default_rng(seed) for _ in range(3))
    first = sample(distribution, one)
    assert first == sample(distribution, other) and type(first) is float
    fresh.random()
    assert one.random() == fresh.random()


@given(distributions)
def test_json_round_trip_is_lossless(distribution):
    holder = Holder(number=distribution)
    assert parse(Holder, json.loads(holder.to_json()), "test") == holder


def test_uniform_numbers_cover_their_interval():
    generator = np.random.default_rng(0)
    numbers = [sample(Uniform(uniform=(-1.0, 3.0)), generator) for _ in range(2000)]
    counts, _ = np.histogram(numbers, bins=4, range=(-1.0, 3.0))
    assert counts.min() > 400


def test_intervals_are_as_likely_as_they_are_long():
    generator = np.random.default_rng(0)
    of = OneOf(one_of=((0.0, 1.0), (5.0, 8.0)))
    numbers = np.array([sample(of, generator) for _ in range(4000)])
    assert abs((numbers < 2).mean() - 0.25) < 0.03
    assert np.histogram(numbers[numbers > 2], bins=3, range=(5, 8))[0].min() > 850


def test_every_choice_is_made():
    generator = np.random.default_rng(0)
    assert {sample(Choice(choice=(1.0, 2.0, 5.0)), generator) for _ in range(100)} == {1, 2, 5}


@pytest.mark.parametrize(
    "data, message",
    [
        ({"uniform": [1, -1]}, r"expected the lower bound first: \{uniform: \[-1\.0, 1\.0\]\}"),
        ({"uniform": [0, 1, 2]}, "at most 2"),
        ({"uniform": [0, float("inf")]}, "finite"),
        ({"choice": []}, "at least 1"),
        ({"unifrm": [0, 1]}, r"expected a number, \{uniform: \[low, high\]\}, \{choice"),
        ({"one_of": [[1, 0]]}, "ascending bounds"),
        ({"one_of": [[0, 2], [1, 3]]}, "do not overlap"),
        ({"uniform": [0, 1], "choice": [0]}, "choice"),
        ("much", "valid number"),
        (float("nan"), "finite"),
        (None, "number"),
    ],
)
def test_other_data_is_refused(data, message):
    with pytest.raises(ConfigError, match=message):
        parse(Holder, {"number": data}, "mine.yaml")
