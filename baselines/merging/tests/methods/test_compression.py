"""Compression of several networks side by side into one of their size."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from merging_support.problems import WIDE, make_data_holder, make_problem, resized

from fleet_merging.errors import MergeError, MessageError
from fleet_merging.methods.compression import greedy
from fleet_merging.methods.registry import merge
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.queries.query import LossQuery, MomentQuery
from fleet_merging.symmetry.table import Symmetry
from fleet_merging.user_models import merge as merge_models

KINDS = ("mlp", "elman", "gru", "lstm")


@torch.no_grad()
def problem_of(kind: str, seeds: tuple[int, ...], factor: float | None = None) -> MergeProblem:
    """Returns a problem of networks whose own outputs are the labels of their data.

    With a factor, one network of other widths is to be made, about which data holders answer, too.
    """
    architecture, models, holders = WIDE[kind], [], []
    for seed in seeds:
        network, inputs = architecture.build(seed).eval(), inputs_of(kind, len(models))
        models.append(network.state_dict())
        holders.append(make_data_holder(architecture, network(inputs), inputs))
    if factor is None:
        return make_problem(architecture, models, holders)
    target = resized(kind, factor)
    holders = [replace(each, resized=lambda state: target) for each in holders]
    return make_problem(architecture, models, holders, resized=target)


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
def outputs_of(problem: MergeProblem, kind: str, method: str = "structured_compression", **options):
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

    def error(method: str, **options) -> float:
        return error_of(merge(method, problem, **options), problem)

    assert error("structured_compression") < error("naive_average")


@torch.no_grad()
def error_of(merged: MergeResult, problem: MergeProblem) -> float:
    """Returns the mean squared error on the data of all."""
    holders: Any = problem.data_holders
    batches = [batch for holder in holders for batch in holder.batches()]
    outputs = [merged.model(batch.arguments[0]).flatten(0, -2) for batch in batches]
    return float(
        (torch.cat(outputs) - torch.cat([each.labels for each in batches])).square().mean()
    )


@pytest.mark.parametrize("kind", KINDS)
def test_as_wide_as_all_together_it_is_their_concatenation(kind):
    """All units are chosen, so that nothing is left to fit."""
    problem = problem_of(kind, (1, 2, 3), 3)
    merged, beside = (
        merge("structured_compression", problem, ridge=1e-8),
        merge("concatenation", problem, ridge=1e-8),
    )
    assert not merged.is_ensemble and merged.module is problem.resized
    inputs = inputs_of(kind, 99)
    with torch.no_grad():
        torch.testing.assert_close(merged.model(inputs), beside.model(inputs), rtol=1e-3, atol=1e-3)
    network = resized(kind, 3)
    network.load_state_dict(merged.state)  # which anyone can load


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_of_other_widths_is_nearer_to_the_labels_the_wider_it_is(kind):
    errors = []
    for factor in (0.25, 0.5, 1.5, 2.5):
        problem = problem_of(kind, (1, 2, 3), factor)
        errors.append(error_of(merge("structured_compression", problem), problem))
    assert errors == sorted(errors, reverse=True)
    assert errors[0] < error_of(merge("naive_average", problem_of(kind, (1, 2, 3))), problem)


def test_gradients_may_begin_at_what_it_returns():
    problem = problem_of("mlp", (1, 2, 3))
    compressed = merge("structured_compression", problem)
    same = merge("fed_sgd", problem, start="structured_compression", steps=0)
    assert error_of(same, problem) == pytest.approx(error_of(compressed, problem), rel=1e-3)
    assert same.traffic == compressed.traffic
    tuned = merge("fed_sgd", problem, start="structured_compression", steps=100, rate=2e-3)
    assert error_of(tuned, problem) < error_of(compressed, problem)
    assert tuned.traffic.calls == compressed.traffic.calls + 100 * 3


@pytest.mark.parametrize("kind", KINDS)
def test_the_models_own_widths_are_the_default_to_the_bit(kind):
    given, default = (
        merge("structured_compression", problem_of(kind, (1, 2), factor)).state
        for factor in (1, None)
    )
    assert all(torch.equal(given[name], tensor) for name, tensor in default.items())


def test_any_models_are_compressed_to_a_model_that_is_given():
    architecture = WIDE["gru"]
    models = [architecture.build(seed).eval() for seed in range(3)]
    data = []
    for seed, model in enumerate(models):
        inputs = inputs_of("gru", seed)
        data.append([(inputs, model(inputs).detach())])
    target = resized("gru", 0.5).float()  # it is made as precise as the models
    merged = merge_models("structured_compression", models, data=data, model=target)
    assert merged.model.state_dict()["core.weight_hh_l1"].shape == (36, 12)
    assert merged.parameters < sum(each.numel() for each in models[0].state_dict().values())
    held = error_of(merged, problem_of("gru", (0, 1, 2)))
    average = error_of(
        merge("naive_average", problem_of("gru", (0, 1, 2))), problem_of("gru", (0, 1, 2))
    )
    assert held < average


class Relu(torch.nn.Module):
    """An Elman network of the same tensors with another activation."""

    def __init__(self) -> None:
        super().__init__()
        self.core = torch.nn.RNN(3, 30, num_layers=2, batch_first=True, nonlinearity="relu")
        self.head = torch.nn.Linear(30, 2)

    def forward(self, x):
        return self.head(self.core(x)[0])


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (lambda: resized("gru", 0.5), "not of the models' kind"),
        (lambda: resized("mlp", 0.5), "not of the models' kind"),
        (lambda: Relu().double(), "another activation"),
        (lambda: resized("elman", 0.5).float(), "float32"),
        (lambda: resized("elman", 2.5), "60 units 'h0', but all models together have only 48"),
    ],
    ids=["cell", "layers", "activation", "precision", "width"],
)
def test_networks_of_another_kind_and_too_wide_ones_are_refused_before_anyone_is_asked(
    target, words
):
    class Silent:
        def answer(self, query: object):
            raise AssertionError(query)

    problem = problem_of("elman", (1, 2))
    problem = replace(problem, resized=target(), data_holders=[Silent(), Silent()])
    with pytest.raises(MergeError, match=words):
        merge("structured_compression", problem)


def test_a_width_needs_to_be_possible():
    problem = problem_of("elman", (1, 2), 0.5)
    for width, words in ((0, "from 1 to 48"), (49, "from 1 to 48"), (12, "as `model`")):
        with pytest.raises(MergeError, match=words):
            merge("structured_compression", problem, width=width)
    named = replace(problem, resized=None, at_width=lambda width: resized("elman", width / 24))
    merged, expected = (
        merge("structured_compression", named, width=12),
        merge("structured_compression", problem),
    )
    assert all(torch.equal(merged.state[name], each) for name, each in expected.state.items())


def test_a_data_holder_answers_about_the_sizes_that_it_knows_alone():
    holder: Any = problem_of("elman", (1, 2), 0.5).data_holders[0]
    network: Any = resized("elman", 0.5)
    query = MomentQuery(network.state_dict(), ("head",), "labels")
    found = holder.answer(query)["head"]
    (batch,) = holder.batches()
    with torch.no_grad():
        units = network.core(batch.arguments[0])[0].flatten(0, 1)
    rows = torch.nn.functional.pad(units, (0, 1), value=1.0)
    torch.testing.assert_close(found.inputs[0], rows.T @ rows / len(rows), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        found.targets[0], rows.T @ batch.labels / len(rows), rtol=1e-5, atol=1e-6
    )
    for other in (resized("elman", 2), resized("gru", 0.5)):
        with pytest.raises(MessageError, match="other shapes"):
            holder.answer(replace(query, model=other.state_dict()))
    with pytest.raises(MessageError, match="other shapes"):  # nor beside those of other sizes
        holder.answer(replace(query, beside=(WIDE["elman"].build(1).state_dict(),)))
    with pytest.raises(MessageError, match="other shapes"):
        holder.answer(LossQuery(network.state_dict(), None))


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
    found = greedy([(G, G @ wanted)], count)

    # The damping of 0.1% may exchange units that explain equally much.
    def explained(units: list[int]) -> float:
        columns = rows[:, units]
        residual = targets - columns @ np.linalg.lstsq(columns, targets, rcond=None)[0]
        return float((targets**2).sum() - (residual**2).sum())

    assert len(set(found)) == count
    assert explained(found) >= 0.98 * explained(tried)


def test_three_messages_are_sent_to_each_data_holder():
    assert merge("structured_compression", problem_of("elman", (1, 2))).traffic.calls == 3 * 2


@pytest.mark.parametrize(
    ("options", "words"), [({"ridge": -1.0}, "ridge"), ({"ridge": 0.0}, "ridge")]
)
def test_options_are_checked(options, words):
    with pytest.raises(MergeError, match=words):
        merge("structured_compression", problem_of("mlp", (1, 2)), **options)


def test_units_in_fixed_order_are_refused():
    table = {name: text.replace("h1", "_h1") for name, text in WIDE["mlp"].symmetry.table().items()}
    problem = replace(problem_of("mlp", (1, 2)), symmetry=Symmetry.of(table))
    with pytest.raises(MergeError, match="fixed order"):
        merge("structured_compression", problem)


@pytest.mark.parametrize(("kind", "norm"), [("conv", "BatchNorm"), ("transformer", "LayerNorm")])
def test_norms_are_refused_by_name(kind, norm):
    with pytest.raises(MergeError, match=norm):
        merge("structured_compression", problem_of(kind, (1, 2)))


def convolutions(channels: int):
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, channels, 3),
        torch.nn.ReLU(),
        torch.nn.Conv2d(channels, 2 * channels, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(2 * channels * 16, 3),
    )


def test_channels_are_chosen_whole_though_they_are_read_at_many_places():
    torch.manual_seed(0)
    model = convolutions(4).eval()
    copies, data = [], []
    for seed in range(2):
        order, later = torch.randperm(4), torch.randperm(8)
        copy = convolutions(4).eval()
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        for name in ("0.weight", "0.bias"):
            state[name] = state[name][order]
        state["2.weight"] = state["2.weight"][later][:, order]
        state["2.bias"] = state["2.bias"][later]
        state["5.weight"] = state["5.weight"].unflatten(1, (8, 16))[:, later].flatten(1)
        copy.load_state_dict(state)
        copies.append(copy)
        inputs = torch.randn(150, 2, 6, 6, generator=torch.Generator().manual_seed(seed))
        data.append([(inputs, model(inputs).detach())])
    inputs = torch.randn(50, 2, 6, 6)
    with torch.no_grad():
        expected = model(inputs)
        merged = merge_models("structured_compression", copies, data=data, ridge=1e-7).model
        torch.testing.assert_close(merged(inputs), expected, rtol=0.02, atol=0.02)
        narrow = merge_models(
            "structured_compression", copies, data=data, model=convolutions(3)
        ).model
        assert float((narrow(inputs) - expected).square().mean()) < float(expected.var())
    assert narrow.state_dict()["2.weight"].shape == (6, 3, 3, 3)
