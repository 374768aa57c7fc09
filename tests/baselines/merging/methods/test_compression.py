"""Compression of several networks side by side into one of their size."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings
from hypothesis import strategies as st
from support.merging_cases import WIDE, make_data_holder, make_problem

from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.methods.compression import _greedy
from fleet_tools.baselines.merging.methods.registry import merge
from fleet_tools.baselines.merging.problem import MergeProblem
from fleet_tools.baselines.merging.symmetry.table import Symmetry

KINDS = ("mlp", "elman", "gru", "lstm")


@torch.no_grad()
def problem_of(kind: str, seeds: tuple[int, ...]) -> MergeProblem:
    """Returns a problem of networks whose own outputs are the labels of their data."""
    architecture, models, holders = WIDE[kind], [], []
    for seed in seeds:
        network, inputs = architecture.build(seed).eval(), inputs_of(kind, len(models))
        models.append(network.state_dict())
        holders.append(make_data_holder(architecture, network(inputs), inputs))
    return make_problem(architecture, models, holders)


def inputs_of(kind: str, seed: int):
    example = WIDE[kind].example()
    shape = (60, *example.shape[1:])
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(example)


def permuted(problem: MergeProblem) -> MergeProblem:
    """Returns the problem with its models permuted at random."""
    generator = np.random.default_rng(0)
    models = [
        problem.symmetry.apply(problem.group.random(generator), each) for each in problem.models
    ]
    return replace(problem, models=models)


@torch.no_grad()
def outputs_of(problem: MergeProblem, kind: str, method: str = "compress", **options):
    """Returns the outputs of a merge on inputs that nobody has."""
    return merge(method, problem, **options).model(inputs_of(kind, 99))


@pytest.mark.parametrize("kind", KINDS)
def test_permuted_copies_are_merged_into_their_function(kind):
    """Units of copies explain one another, so that one of each is chosen."""
    merged = outputs_of(permuted(problem_of(kind, (1, 1, 1))), kind, ridge=1e-7)
    with torch.no_grad():
        expected = WIDE[kind].build(1).eval()(inputs_of(kind, 99))
    torch.testing.assert_close(merged, expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_order_and_permutations_of_the_models_do_not_matter(kind):
    problem = problem_of(kind, (1, 2))
    turned = replace(
        permuted(problem),
        models=permuted(problem).models[::-1],
        data_holders=problem.data_holders[::-1],
    )
    first, second = (outputs_of(each, kind) for each in (problem, turned))
    torch.testing.assert_close(first, second, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_nearer_to_the_labels_than_the_average(kind):
    problem = problem_of(kind, (1, 2, 3))

    @torch.no_grad()
    def error(method: str, **options) -> float:
        model = merge(method, problem, **options).model
        batches = [batch for holder in problem.data_holders for batch in holder.batches()]
        outputs = [model(batch.arguments[0]).flatten(0, -2) for batch in batches]
        labels = [batch.labels for batch in batches]
        return float((torch.cat(outputs) - torch.cat(labels)).square().mean())

    assert error("compress") < error("naive_average")
    assert error("compress") < 1.1 * error("compress", choice="variance")


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(1, 5))
def test_the_first_units_are_those_of_least_squares_tried_one_by_one(seed, count):
    """Forward selection by deflation chooses as solving every extended problem anew does."""
    generator = np.random.default_rng(seed)
    rows, wanted = generator.normal(size=(40, 7)), generator.normal(size=(7, 2))
    G = rows.T @ rows / 40
    targets = rows @ wanted
    tried: list[int] = []
    for _ in range(count):

        def left(unit: int) -> float:
            columns = rows[:, [*tried, unit]]
            residual = targets - columns @ np.linalg.lstsq(columns, targets, rcond=None)[0]
            return float((residual**2).sum())

        tried.append(min((unit for unit in range(7) if unit not in tried), key=left))
    found = _greedy([(G, G @ wanted)], count)

    # The damping of 0.1% may exchange units that explain equally much.
    def explained(units: list[int]) -> float:
        columns = rows[:, units]
        residual = targets - columns @ np.linalg.lstsq(columns, targets, rcond=None)[0]
        return float((targets**2).sum() - (residual**2).sum())

    assert len(set(found)) == count
    assert explained(found) >= 0.98 * explained(tried)


def test_three_messages_are_sent_to_each_data_holder():
    assert merge("compress", problem_of("elman", (1, 2))).traffic.calls == 3 * 2


@pytest.mark.parametrize(
    ("options", "words"), [({"choice": "best"}, "chosen by 'best'"), ({"ridge": 0.0}, "ridge")]
)
def test_options_are_checked(options, words):
    with pytest.raises(MergeError, match=words):
        merge("compress", problem_of("mlp", (1, 2)), **options)


def test_units_in_fixed_order_are_refused():
    table = {name: text.replace("h1", "_h1") for name, text in WIDE["mlp"].symmetry.table().items()}
    problem = replace(problem_of("mlp", (1, 2)), symmetry=Symmetry.of(table))
    with pytest.raises(MergeError, match="fixed order"):
        merge("compress", problem)


@pytest.mark.parametrize("kind", ["conv", "transformer"])
def test_norms_are_refused_by_name(kind):
    with pytest.raises(MergeError, match="belong to none"):
        merge("compress", problem_of(kind, (1, 2)))
