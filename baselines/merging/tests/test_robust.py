"""Rules of robust aggregation: order, breakdown points, and independent computations."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fleet_merging.errors import MergeError, UnknownChoiceError
from fleet_merging.methods.registry import merge
from fleet_merging.moments.measurement import Moments, combine
from fleet_merging.problem import MergeProblem
from fleet_merging.robust import RULES, robust_moments, rule_of
from fleet_merging.symmetry.layers import mlp
from fleet_merging.symmetry.table import Symmetry

ROBUST = [name for name in RULES if name != "mean"]
NUMBERS = st.floats(-10, 10)
HOSTILE = st.one_of(NUMBERS, st.floats(-1e300, 1e300))


@st.composite
def fleets(draw: st.DrawFn, fewest: int = 5) -> np.ndarray:
    shape = (draw(st.integers(fewest, fewest + 4)), draw(st.integers(1, 4)))
    return draw(arrays(np.float64, shape, elements=NUMBERS))


@st.composite
def poisoned(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    """Vectors of honest robots, those of all robots in some order, and the number f of others."""
    byzantine = draw(st.integers(1, 2))
    honest = draw(fleets(byzantine + 3))
    shape = (byzantine, honest.shape[1])
    others = draw(arrays(np.float64, shape, elements=HOSTILE))
    vectors = np.concatenate([honest, others])
    return honest, vectors[draw(st.permutations(range(len(vectors))))], byzantine


def ones(vectors: np.ndarray) -> np.ndarray:
    return np.ones(len(vectors))


@pytest.mark.parametrize("name", RULES)
@given(vectors=fleets(), data=st.data())
def test_the_order_of_robots_does_not_matter(name, vectors, data):
    order = data.draw(st.permutations(range(len(vectors))))
    weights = np.arange(1.0, len(vectors) + 1)
    rule = rule_of(name)
    found = rule(vectors[order], weights[order])
    np.testing.assert_allclose(found, rule(vectors, weights), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ROBUST)
@given(case=poisoned())
def test_whatever_a_few_send_the_result_stays_with_the_honest(name, case):
    honest, vectors, byzantine = case
    found = rule_of(name, byzantine)(vectors, ones(vectors))
    low, high = honest.min(axis=0), honest.max(axis=0)
    if name in ("coordinate_median", "trimmed_mean"):  # within the hull, coordinate by coordinate
        assert (found >= low - 1e-9).all() and (found <= high + 1e-9).all()
    elif name == "norm_bound":
        assert np.linalg.norm(found) <= np.linalg.norm(honest, axis=1).max() * (1 + 1e-9)
    else:  # a vector that is chosen has honest ones near, no further than these from each other
        apart = np.linalg.norm(high - low)
        nearest = np.abs(found - np.clip(found, low, high)).max()
        assert nearest <= len(vectors) * apart + 1e-9


@pytest.mark.parametrize("name", ROBUST)
def test_the_mean_is_what_one_robot_decides_and_no_rule_is(name):
    vectors = np.array([[1.0], [1.1], [0.9], [1.0], [-1e6]])
    assert abs(rule_of("mean")(vectors, ones(vectors))[0]) > 1e5
    assert 0.5 < rule_of(name)(vectors, ones(vectors))[0] < 1.2
    lying = np.array([1.0, 1, 1, 1, 2**22])  # of weights, too
    assert 0.5 < rule_of(name)(vectors, lying)[0] < 1.2


@given(vectors=fleets())
def test_rules_are_those_of_numpy_and_scipy(vectors):
    def found(name, byzantine=1):
        return rule_of(name, byzantine)(vectors, ones(vectors))

    count = len(vectors)
    np.testing.assert_allclose(found("coordinate_median"), np.median(vectors, axis=0))
    trimmed = scipy.stats.trim_mean(vectors, 1.5 / count, axis=0)
    np.testing.assert_allclose(found("trimmed_mean"), trimmed, atol=1e-12)
    norms = np.array([sum(x * x for x in vector) ** 0.5 for vector in vectors])
    bound = float(np.median(norms))
    short = [v if n <= bound else v / n * bound for v, n in zip(vectors, norms, strict=True)]
    np.testing.assert_allclose(found("norm_bound"), np.mean(short, axis=0), atol=1e-12)
    distances = scipy.spatial.distance.squareform(scipy.spatial.distance.pdist(vectors))
    scores = np.sort(distances**2, axis=1)[:, 1 : count - 2].sum(axis=1)
    chosen = found("krum")
    index = int(np.abs(vectors - chosen).sum(axis=1).argmin())
    assert (vectors[index] == chosen).all()
    assert scores[index] <= scores.min() + 1e-9 * (1 + scores.max())
    if np.diff(np.sort(scores)).min() > 1e-9:
        best = np.argsort(scores)[: count - 1]
        np.testing.assert_allclose(found("multi_krum"), vectors[best].mean(axis=0), atol=1e-12)


@given(vectors=fleets())
def test_where_nobody_is_hostile_the_mean_is_the_rule(vectors):
    expected = vectors.mean(axis=0)
    for name in ("trimmed_mean", "multi_krum"):
        found = rule_of(name, 0)(vectors, ones(vectors))
        np.testing.assert_allclose(found, expected, atol=1e-12)
    signs = np.where(vectors < 0, -1.0, 1.0)  # of one norm
    found = rule_of("norm_bound")(signs, ones(signs))
    np.testing.assert_allclose(found, signs.mean(axis=0), atol=1e-12)


@given(vectors=fleets(), shift=NUMBERS)
@example(vectors=np.array([[0.0], [1.0], [2.0], [3.0], [9.0]]), shift=2.0)  # two of one score
def test_rules_move_with_all_vectors(vectors, shift):
    for name in ROBUST:
        if name != "norm_bound":  # which is about zero
            rule = rule_of(name)
            weights = ones(vectors)
            if "krum" in name:  # by scores, of which near ones may change places by rounding
                vectors = np.round(vectors * 8) / 8
                shift = round(shift * 8) / 8
            moved = rule(vectors + shift, weights) - shift
            np.testing.assert_allclose(moved, rule(vectors, weights), atol=1e-9)


def test_too_few_robots_and_numbers_that_are_none_are_refused():
    vectors = np.zeros((4, 2))
    for name in ("krum", "multi_krum"):
        with pytest.raises(MergeError, match="at least 5 robots; given: 4"):
            rule_of(name)(vectors, ones(vectors))
    with pytest.raises(MergeError, match="at least 5 robots"):
        rule_of("trimmed_mean", 2)(vectors, ones(vectors))
    with pytest.raises(MergeError, match=r"\[1\] are not finite"):
        rule_of("coordinate_median")(np.array([[0.0], [np.nan]]), np.ones(2))
    with pytest.raises(MergeError, match="0 or more"):
        rule_of("krum", -1)
    with pytest.raises(UnknownChoiceError, match="norm_bound"):
        rule_of("medoid")


def moments_of(seed: int, scale: float = 1.0) -> Moments:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(2, 40, 4, generator=generator, dtype=torch.float64)
    targets = torch.randn(2, 40, 3, generator=generator, dtype=torch.float64)
    return Moments(scale * rows.mT @ rows / 40, scale * rows.mT @ targets / 40)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("scale", [1.0, 1000.0, -1000.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_pooled_moments_are_symmetric_and_have_no_negative_direction(name, seed, scale):
    given_moments = [moments_of(10 * seed + k) for k in range(4)] + [moments_of(seed + 999, scale)]
    pooled = robust_moments(given_moments, [0.2] * 5, name)
    if name == "mean":
        expected = combine(given_moments, [0.2] * 5)
        assert torch.equal(pooled.inputs, expected.inputs)
        return
    assert torch.allclose(pooled.inputs, pooled.inputs.mT)
    assert float(torch.linalg.eigvalsh(pooled.inputs).min()) >= -1e-9
    honest = torch.stack([each.inputs for each in given_moments[:4]])
    assert float(pooled.inputs.abs().max()) <= 3 * float(honest.abs().max())


@pytest.mark.parametrize("name", [name for name in ROBUST if name != "norm_bound"])
def test_robots_of_one_map_have_it_in_their_pooled_moments(name):
    # Rows differ from robot to robot, and the map from rows to targets does not: so the pooled
    # moments are those of this map, too, though one robot's are false.
    generator = torch.Generator().manual_seed(3)
    M = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    given_moments = [Moments(each.inputs, each.inputs @ M) for each in map(moments_of, range(6))]
    pooled = robust_moments([*given_moments, moments_of(9, 1000.0)], [1 / 7] * 7, name)
    found = torch.linalg.solve(pooled.inputs, pooled.targets)
    torch.testing.assert_close(found, M, atol=1e-4, rtol=0)


def test_moments_of_nothing_end_no_merge():
    zero, one = torch.zeros(1, 2, 2).double(), torch.ones(1, 2, 1).double()
    given_moments = [*(Moments(torch.eye(2).double()[None], one) for _ in range(4))]
    for name in ROBUST:
        pooled = robust_moments([*given_moments, Moments(zero, 1e300 * one)], [0.2] * 5, name)
        assert torch.allclose(pooled.targets, one, atol=0.5)


SYMMETRY = Symmetry.of(mlp(("0", "1"), ("_in", "hidden", "_out")))
SHAPES = {"0.weight": (3, 2), "0.bias": (3,), "1.weight": (1, 3), "1.bias": (1,)}


def model_of(seed: int, base=None, spread: float = 0.01):
    generator = torch.Generator().manual_seed(seed)
    drawn = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    return drawn if base is None else {n: base[n] + spread * each for n, each in drawn.items()}


@pytest.mark.parametrize("name", ROBUST)
@pytest.mark.parametrize("alignment", ["none", "weights"])
def test_as_methods_rules_bear_a_robot_whose_weights_are_anything(name, alignment):
    base = model_of(0)
    honest = [model_of(k, base) for k in range(1, 5)]
    bad = {key: -10 * tensor for key, tensor in honest[0].items()}
    problem = MergeProblem(SYMMETRY, [*honest, bad], base=base)
    for given_problem in (problem, replace(problem, base=None)):
        merged = merge(name, given_problem, alignment=alignment).state
        if alignment == "none":  # or else near the base in another order of its units
            assert all((merged[k] - base[k]).abs().max() < 0.2 for k in base)
        assert all(merged[k].abs().max() < base[k].abs().max() + 0.2 for k in base)
    broken = merge("naive_average", problem).state
    assert any((broken[k] - base[k]).abs().max() > 0.5 for k in base)


@pytest.mark.parametrize("method", ["norm_bound", "multi_krum"])
def test_what_a_rule_costs_honest_robots_is_little(method):
    base = model_of(0)
    models = [model_of(k, base) for k in range(1, 6)]
    problem = MergeProblem(SYMMETRY, models, base=base)
    merged, mean = merge(method, problem).state, merge("naive_average", problem).state
    for name in base:
        assert float((merged[name] - mean[name]).abs().max()) < 0.02
