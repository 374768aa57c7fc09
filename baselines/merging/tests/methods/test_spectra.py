"""Isotropic merging, task singular vectors and WUDI, against numpy and their own laws."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet_merging.errors import MergeError
from fleet_merging.methods.registry import merge
from fleet_merging.methods.spectra import COMBINATIONS, combined
from fleet_merging.problem import MergeProblem
from fleet_merging.symmetry.table import Symmetry

METHODS = ("iso_c", "tsv_m", "wudi")
SEEDS = st.integers(0, 999)
SHAPES = st.sampled_from([(6, 4), (4, 6), (5, 5)])
TABLE = Symmetry.of({"w": "_ _", "b": "_"})


def drawn(seed, shape, count):
    """Returns a base and changes of a matrix and a bias."""
    generator = np.random.default_rng(seed)
    base = generator.normal(size=shape), generator.normal(size=shape[0])
    return base, generator.normal(size=(count, *shape)), generator.normal(size=(count, shape[0]))


def problem_of(base, changes, biases, weights=None):
    def state(w, b):
        return {"w": torch.from_numpy(w), "b": torch.from_numpy(b)}

    models = [state(base[0] + w, base[1] + b) for w, b in zip(changes, biases, strict=True)]
    return MergeProblem(TABLE, models, averaging_weights=weights, base=state(*base))


def change_of(method, drawing, weights=None, **options):
    """Returns the changes of matrix and bias."""
    merged = merge(method, problem_of(*drawing, weights=weights), **options).state
    return merged["w"].numpy() - drawing[0][0], merged["b"].numpy() - drawing[0][1]


def polar(matrix):
    """Returns the nearest matrix of orthonormal rows or columns: A (A^T A)^-1/2, by eigenvalues."""
    wide = matrix.shape[0] < matrix.shape[1]
    A = matrix.T if wide else matrix
    values, vectors = np.linalg.eigh(A.T @ A)
    nearest = A @ (vectors / np.sqrt(values)) @ vectors.T
    return nearest.T if wide else nearest


@given(SEEDS, SHAPES, st.integers(1, 4))
def test_iso_c_flattens_the_spectrum_of_the_mean_and_keeps_its_sum(seed, shape, count):
    drawing = drawn(seed, shape, count)
    change, bias = change_of("iso_c", drawing, scale=1.0)
    mean = drawing[1].mean(0)
    values = np.linalg.svd(change, compute_uv=False)
    np.testing.assert_allclose(values, np.linalg.svd(mean, compute_uv=False).mean())
    np.testing.assert_allclose(change, values[0] * polar(mean), atol=1e-7)
    np.testing.assert_allclose(bias, drawing[2].mean(0))
    doubled, _ = change_of("iso_c", drawing, scale=2.0)
    np.testing.assert_allclose(doubled, 2 * change, atol=1e-12)


@given(SEEDS, SHAPES, st.integers(1, 3))
def test_tsv_m_sums_orthogonal_parts_of_low_rank(seed, shape, count):
    drawing = drawn(seed, shape, count)
    change, bias = change_of("tsv_m", drawing)
    kept = min(shape) // count
    parts = [np.linalg.svd(each, full_matrices=False) for each in drawing[1]]
    U = polar(np.hstack([U[:, :kept] for U, _, _ in parts]))
    V = polar(np.vstack([V[:kept] for _, _, V in parts]))
    expected = U @ np.diag(np.concatenate([S[:kept] for _, S, _ in parts])) @ V
    np.testing.assert_allclose(change, expected, atol=1e-7)
    np.testing.assert_allclose(bias, drawing[2].mean(0))


def interference(change, changes):
    """Returns WUDI's loss, as the paper writes it."""
    return sum(
        np.square((change - each) @ each.T).sum() / np.square(each).sum() for each in changes
    )


@given(SEEDS, SHAPES, st.integers(1, 4))
def test_wudi_solves_for_the_least_interference(seed, shape, count):
    drawing = drawn(seed, shape, count)
    exact, _ = change_of("wudi", drawing, ridge=1e-9)
    # Independently: the normal equations as one system, by numpy's least squares.
    rows = np.vstack([each @ each.T / np.linalg.norm(each) for each in drawing[1]])
    stacked = np.hstack([each.T / np.linalg.norm(each) for each in drawing[1]])
    fitted = np.linalg.lstsq(stacked.T, rows)[0].T
    least = interference(exact, drawing[1])
    np.testing.assert_allclose(least, interference(fitted, drawing[1]), rtol=1e-4, atol=1e-6)
    assert least <= interference(drawing[1].sum(0), drawing[1]) + 1e-9


@settings(max_examples=10, deadline=None)
@given(SEEDS, SHAPES, st.sampled_from([1, 3]))
def test_copies_of_a_model_are_that_model_where_the_method_says_so(seed, shape, count):
    base, changes, biases = drawn(seed, shape, 1)
    copies = base, np.repeat(changes, count, 0), np.repeat(biases, count, 0)
    change, bias = change_of("wudi", copies, weights=range(1, count + 1), ridge=1e-9)
    np.testing.assert_allclose(change, changes[0], atol=1e-4)
    np.testing.assert_allclose(bias, biases[0])
    # Of n copies TSV keeps the first r / n directions, whichever their number.
    U, S, V = np.linalg.svd(changes[0], full_matrices=False)
    kept = min(shape) // count
    expected = U[:, :kept] * S[:kept] @ V[:kept]
    np.testing.assert_allclose(change_of("tsv_m", copies)[0], expected, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=8, deadline=None)
@given(seed=SEEDS, order=st.permutations(range(3)))
def test_the_order_of_models_and_of_units_does_not_matter(method, seed, order):
    base, changes, biases = drawn(seed, (6, 5), 3)
    weights = np.array([1, 2, 4])
    change, bias = change_of(method, (base, changes, biases), weights)
    shuffled = base, changes[order], biases[order]
    again, bias_again = change_of(method, shuffled, weights[order])
    np.testing.assert_allclose(again, change, atol=1e-8)
    np.testing.assert_allclose(bias_again, bias)
    units = np.random.default_rng(seed).permutation(6)
    of_units = (base[0][units], base[1][units]), changes[:, units], biases[:, units]
    np.testing.assert_allclose(change_of(method, of_units, weights)[0], change[units], atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_model_that_learned_nothing_leaves_finite_numbers(method):
    base, changes, biases = drawn(0, (4, 3), 3)
    changes[1] = biases[1] = 0
    assert all(np.isfinite(each).all() for each in change_of(method, (base, changes, biases)))
    nothing = base, 0 * changes, 0 * biases
    np.testing.assert_allclose(change_of(method, nothing)[0], 0, atol=1e-12)


@pytest.mark.parametrize("by", COMBINATIONS)
def test_a_combination_has_the_defaults_of_its_method(by):
    base, changes, biases = drawn(1, (5, 4), 3)
    vectors = [
        {"w": torch.from_numpy(w), "b": torch.from_numpy(b)}
        for w, b in zip(changes, biases, strict=True)
    ]
    found = combined(vectors, [1 / 3] * 3, by)
    method = "naive_average" if by == "average" else by
    change, bias = change_of(method, (base, changes, biases))
    np.testing.assert_allclose(found["w"].numpy(), change, atol=1e-9)
    np.testing.assert_allclose(found["b"].numpy(), bias, atol=1e-9)


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("iso_c", {"scale": float("inf")}, "scale is inf"),
        ("wudi", {"ridge": 0.0}, "WUDI is 0.0"),
    ],
)
def test_invalid_options_are_explained(method, options, words):
    with pytest.raises(MergeError, match=words):
        merge(method, problem_of(*drawn(0, (3, 3), 2)), **options)
