"""Fisher merging, against posteriors that are known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from support.merging_cases import WIDE, make_data_holder
from support.vector_models import gaussian, holder, vectors

from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.methods.gradient_methods import fisher
from fleet_tools.baselines.merging.problem import MergeProblem


@settings(max_examples=15)
@given(st.integers(0, 999), st.integers(1, 4))
def test_it_finds_the_mode_of_the_product_of_gaussian_posteriors(seed, count):
    """Solved as linear least squares, which knows nothing of Fisher information."""
    generator = np.random.default_rng(seed)
    means, precisions = generator.normal(size=(count, 3)), generator.uniform(0.1, 9, (count, 3))
    weights = generator.integers(1, 5, count)
    holders = [gaussian(*each) for each in zip(means, precisions, strict=True)]
    merged = fisher(vectors(list(means), holders, weights), samples=3)
    roots = np.sqrt(weights[:, None] * precisions)
    rows = np.concatenate([np.diag(root) for root in roots])
    mode = np.linalg.lstsq(rows, (roots * means).ravel(), rcond=None)[0]
    np.testing.assert_allclose(merged.state["x"], mode, rtol=1e-9)


def test_a_constant_factor_of_all_losses_does_not_matter():
    means, precisions = [[0.0, 1.0], [4.0, 3.0]], np.array([[1.0, 2.0], [3.0, 1.0]])
    one, other = (
        fisher(vectors(means, [gaussian(m, c * p) for m, p in zip(means, precisions, strict=True)]))
        for c in (1.0, 1e-8)
    )
    torch.testing.assert_close(one.state, other.state)


def test_drawn_batches_approach_the_fisher_of_single_samples_over_their_size():
    """At the mean of normal data, squares of a batch's gradients are precision / size."""
    means, precisions, sizes = np.array([[0.0], [1.0]]), (1.0, 4.0), (8, 2)

    def drawing(mean, precision, size):
        def loss(x, seed):
            data = np.random.default_rng(seed).normal(mean, precision**-0.5, (size, 1))
            return precision * (x - torch.tensor(data)).square().mean() / 2

        return holder(1, loss)

    holders = [drawing(*each) for each in zip(means, precisions, sizes, strict=True)]
    merged = float(fisher(vectors(list(means), holders), samples=400).state["x"])
    shares = [precision / size for precision, size in zip(precisions, sizes, strict=True)]
    assert abs(merged - shares[1] / sum(shares)) < 0.04


def test_parameters_on_which_no_loss_depends_are_averaged():
    def loss(x, seed):
        return (x[0] - seed % 7).square()

    merged = fisher(vectors([[1.0, 1.0], [2.0, 4.0]], [holder(2, loss)] * 2, [1, 2]))
    np.testing.assert_allclose(merged.state["x"][1], 3.0)
    still = [holder(2, lambda x, seed: 0 * x.sum())] * 2
    np.testing.assert_allclose(fisher(vectors([[1.0, 1.0], [2.0, 4.0]], still)).state["x"],
                               [1.5, 2.5])  # fmt: skip


def test_equal_fishers_average():
    means = np.random.default_rng(0).normal(size=(3, 4))
    holders = [gaussian(mean, [1.0, 2.0, 3.0, 4.0]) for mean in means]
    merged = fisher(vectors(list(means), holders, [1, 2, 3]))
    np.testing.assert_allclose(merged.state["x"], np.average(means, axis=0, weights=[1, 2, 3]))


@pytest.mark.parametrize("kind", ["mlp", "gru", "conv"])
def test_aligned_copies_merge_into_their_function(kind):
    """And each is asked about itself as permuted: otherwise units would have others' weights."""
    architecture = WIDE[kind]
    model = architecture.build()
    state = model.state_dict()
    group, generator = architecture.symmetry.group(state), np.random.default_rng(0)
    models = [architecture.symmetry.apply(group.random(generator), state) for _ in range(3)]
    targets = architecture.outputs(model)
    holders = [make_data_holder(architecture, targets + shift) for shift in (1.0, 2.0, 3.0)]
    problem = MergeProblem(architecture.symmetry, models, data_holders=holders)
    merged = fisher(problem, samples=4, align="weights")
    torch.testing.assert_close(architecture.outputs(model, merged.state), targets)
    apart = fisher(problem, samples=4)
    assert not torch.allclose(architecture.outputs(model, apart.state), targets, atol=0.1)
    for aligned in problem.permuted(merged.permutations):
        torch.testing.assert_close(aligned, merged.state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "0 samples"),
        ({"floor": 0.0}, "a floor above 0"),
        ({"align": "activations"}, "known are none, weights"),
    ],
)
def test_invalid_options_are_explained(options, message):
    with pytest.raises(MergeError, match=message):
        fisher(vectors([[1.0]], [gaussian([1.0], [1.0])]), **options)
