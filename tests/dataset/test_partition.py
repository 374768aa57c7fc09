"""Partitions among robots: nothing is lost, sizes are equal, alpha sets the heterogeneity."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.dataset.partition import dirichlet_partition
from fleet_tools.errors import ConfigError

LABELS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=60)
ALPHAS = st.floats(1e-4, 1e6)
SEEDS = st.integers(0, 2**32)


def partition(labels: Sequence[str], robots: int, alpha: float, seed: int) -> list[list[int]]:
    return dirichlet_partition(labels, robots, alpha, np.random.default_rng(seed))


@given(LABELS, st.data(), ALPHAS, SEEDS)
def test_every_item_belongs_to_one_robot_and_sizes_are_equal(labels, data, alpha, seed):
    robots = data.draw(st.integers(1, len(labels)))
    parts = partition(labels, robots, alpha, seed)
    assert sorted(index for part in parts for index in part) == list(range(len(labels)))
    assert all(part == sorted(part) for part in parts)
    sizes = [len(part) for part in parts]
    assert len(parts) == robots and max(sizes) - min(sizes) <= 1
    assert parts == partition(labels, robots, alpha, seed)


@given(LABELS, st.data(), ALPHAS, SEEDS, st.permutations("abcd"))
def test_names_of_labels_do_not_matter(labels, data, alpha, seed, others):
    robots = data.draw(st.integers(1, len(labels)))
    renamed = [dict(zip("abcd", others, strict=True))[label] for label in labels]
    assert partition(labels, robots, alpha, seed) == partition(renamed, robots, alpha, seed)


def mixtures(labels: Sequence[str], parts: list[list[int]]) -> np.ndarray:
    """Returns the fraction of every label in every part, (robots, labels)."""
    names = sorted(set(labels))
    return np.array(
        [[np.mean([labels[index] == name for index in part]) for name in names] for part in parts]
    )


def test_alpha_ranges_from_one_label_per_robot_to_the_same_mixture_for_all():
    labels = ["a"] * 400 + ["b"] * 300 + ["c"] * 200 + ["d"] * 100
    purity, parts = [], []
    for alpha in (0.01, 0.3, 3, 1e5):
        parts = [part for seed in range(10) for part in partition(labels, 10, alpha, seed)]
        purity.append(mixtures(labels, parts).max(axis=1).mean())
    assert purity == sorted(purity, reverse=True)
    assert purity[0] > 0.7
    # All draw from the pool's mixture: a robot's 100 items have the deviation of a binomial.
    np.testing.assert_allclose(mixtures(labels, parts), [[0.4, 0.3, 0.2, 0.1]] * 100, atol=0.2)
    np.testing.assert_allclose(
        mixtures(labels, parts).std(axis=0), np.sqrt(np.array([24, 21, 16, 9]) / 1e4), rtol=0.35
    )


@pytest.mark.parametrize(("robots", "alpha"), [(0, 1), (4, 1), (2, 0), (2, -1), (2, np.inf)])
def test_impossible_partition_is_refused(robots, alpha):
    with pytest.raises(ConfigError, match="given: "):
        partition("aab", robots, alpha, 0)
