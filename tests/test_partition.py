"""Partition among robots: nothing lost, equal shares, and as unlike as alpha says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.dataset.partition import dirichlet_partition
from fleet_tools.errors import ConfigError

LABELS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=60)
ALPHAS = st.floats(1e-4, 1e6)
SEEDS = st.integers(0, 2**32)


def dealt(labels, robots, alpha, seed):
    return dirichlet_partition(labels, robots, alpha, np.random.default_rng(seed))


@given(LABELS, st.data(), ALPHAS, SEEDS)
def test_every_item_is_one_robots_and_shares_are_equal(labels, data, alpha, seed):
    robots = data.draw(st.integers(1, len(labels)))
    parts = dealt(labels, robots, alpha, seed)
    assert sorted(place for part in parts for place in part) == list(range(len(labels)))
    assert all(part == sorted(part) for part in parts)
    sizes = [len(part) for part in parts]
    assert len(parts) == robots and max(sizes) - min(sizes) <= 1
    assert parts == dealt(labels, robots, alpha, seed)


@given(LABELS, st.data(), ALPHAS, SEEDS, st.permutations("abcd"))
def test_names_of_labels_do_not_matter(labels, data, alpha, seed, others):
    robots = data.draw(st.integers(1, len(labels)))
    renamed = [dict(zip("abcd", others, strict=True))[label] for label in labels]
    assert dealt(labels, robots, alpha, seed) == dealt(renamed, robots, alpha, seed)


def shares(labels, parts):
    """Of every label in every part, (robots, labels)."""
    names = sorted(set(labels))
    return np.array(
        [[np.mean([labels[place] == name for place in part]) for name in names] for part in parts]
    )


def test_alpha_goes_from_one_label_each_to_the_same_mixture_for_all():
    labels = ["a"] * 400 + ["b"] * 300 + ["c"] * 200 + ["d"] * 100
    purity = []
    for alpha in (0.01, 0.3, 3, 1e5):
        parts = [part for seed in range(10) for part in dealt(labels, 10, alpha, seed)]
        purity.append(shares(labels, parts).max(axis=1).mean())
    assert purity == sorted(purity, reverse=True)
    assert purity[0] > 0.7
    # All draw from the pool's shares: a robot's 100 items have a binomial's deviation.
    np.testing.assert_allclose(shares(labels, parts), [[0.4, 0.3, 0.2, 0.1]] * 100, atol=0.2)
    np.testing.assert_allclose(
        shares(labels, parts).std(axis=0), np.sqrt(np.array([24, 21, 16, 9]) / 1e4), rtol=0.35
    )


@pytest.mark.parametrize(("robots", "alpha"), [(0, 1), (4, 1), (2, 0), (2, -1), (2, np.inf)])
def test_partition_that_cannot_be_is_refused(robots, alpha):
    with pytest.raises(ConfigError, match="given: "):
        dealt("aab", robots, alpha, 0)
