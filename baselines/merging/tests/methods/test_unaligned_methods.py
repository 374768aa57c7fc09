"""Laws of the methods on task vectors, and of those that ask for gradients."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("safetensors")

from merging_support.problems import WIDE, make_data_holder

from fleet_merging.errors import MergeError, ModelMismatchError
from fleet_merging.methods.facts import METHODS
from fleet_merging.methods.registry import merge
from fleet_merging.methods.seeded_draws import reordered
from fleet_merging.problem import MergeProblem
from fleet_merging.queries.data_holder import LocalDataHolder
from fleet_merging.symmetry.table import Symmetry

OPTIONS = {
    "task_arithmetic": {"scale": 0.7},
    "ties": {"density": 0.3},
    "dare": {"drop": 0.4, "then": "ties"},
    "fisher": {"samples": 3, "align": "weights"},
    "fed_sgd": {"steps": 3},
}
SPECTRAL: dict[str, dict] = {"iso_c": {}, "tsv_m": {}, "wudi": {}}
"""Methods whose results depend on the number of models."""
ALL = OPTIONS | SPECTRAL
ASKING = ("fisher", "fed_sgd")


def fleet(count, kind="mlp", dtype=torch.float32):
    """Returns the problem of merging unrelated models with a base, weights and data."""
    architecture = WIDE[kind]

    def weights(seed):
        return architecture.build(seed).to(dtype).state_dict()

    holders = []
    for number in range(count):
        with_data = make_data_holder(
            architecture,
            torch.full((len(architecture.example()), 2), float(number)).to(dtype),
            architecture.example().to(dtype),
        )
        holders.append(LocalDataHolder(with_data.model.to(dtype), with_data.loss))
    return MergeProblem(
        architecture.symmetry,
        [weights(seed) for seed in range(count)],
        averaging_weights=np.arange(1, count + 1),
        data_holders=holders,
        base=weights(99),
    )


@pytest.mark.parametrize("method", ALL)
@settings(max_examples=5, deadline=None)
@given(order=st.permutations(range(3)), kind=st.sampled_from(["mlp", "conv"]))
def test_the_order_of_models_does_not_matter(method, order, kind):
    problem = fleet(3, kind)
    one, other = (
        merge(method, each, **ALL[method]) for each in (problem, reordered(problem, order))
    )
    torch.testing.assert_close(one.state, other.state)
    assert one.traffic == other.traffic
    for position, index in enumerate(order):
        for name, units in one.permutations[index].items():
            assert np.array_equal(other.permutations[position][name], units)


@pytest.mark.parametrize("method", OPTIONS)
def test_two_copies_of_each_model_change_nothing(method):
    problem = fleet(3)
    twice = reordered(problem, [0, 1, 2, 0, 1, 2])
    options = OPTIONS[method] | ({"align": "none"} if method == "fisher" else {})
    one, other = (merge(method, each, **options) for each in (problem, twice))
    torch.testing.assert_close(one.state, other.state)


@pytest.mark.parametrize("method", OPTIONS)
def test_a_model_without_weight_changes_nothing(method):
    problem = replace(fleet(3), averaging_weights=[1, 0, 2])
    options = OPTIONS[method] | ({"align": "none"} if method == "fisher" else {})
    one, other = (merge(method, each, **options) for each in (problem, reordered(problem, [0, 2])))
    torch.testing.assert_close(one.state, other.state)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("task_arithmetic", {}),
        ("ties", {"density": 1.0}),
        ("dare", {"drop": 0.0}),
        ("fisher", {"samples": 2}),
        ("fed_sgd", {"steps": 0}),
    ],
)
@pytest.mark.parametrize("count", [1, 3])
def test_copies_merge_into_their_model(method, options, count):
    problem = reordered(fleet(3, "conv"), [2] * count)
    merged = merge(method, problem, **options)
    torch.testing.assert_close(merged.state, problem.models[0])


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_precision_of_the_models_is_kept(method, dtype):
    problem = fleet(2, dtype=dtype)
    exact = {name: [model[name].double() for model in problem.models] for name in problem.models[0]}
    merged = merge(method, problem, **ALL[method])
    for name, tensor in merged.state.items():
        assert tensor.dtype == dtype and bool(torch.isfinite(tensor).all())
        assert not tensor.requires_grad and tensor.shape == exact[name][0].shape


@pytest.mark.parametrize("method", ALL)
def test_integers_and_masks_are_treated_as_in_averages(method):
    problem = fleet(2, "conv")
    models = [
        {**model, "1.num_batches_tracked": torch.tensor(count)}
        for model, count in zip(problem.models, (10, 41), strict=True)
    ]
    problem = replace(problem, models=models)
    counted = merge(method, problem, **ALL[method]).state["1.num_batches_tracked"]
    assert counted.dtype == torch.int64 and int(counted) == 31  # (10 + 2 * 41) / 3
    if "base" in METHODS[method].needs:
        table = Symmetry.of({"x": "_", "mask": "_"})
        base = {"x": torch.zeros(2), "mask": torch.tensor([True, False])}
        one = base | {"x": torch.ones(2)}
        problem = MergeProblem(table, [one, one], base=base)
        assert torch.equal(merge(method, problem).state["mask"], one["mask"])
        other = one | {"mask": ~one["mask"]}
        with pytest.raises(ModelMismatchError, match="is a mask"):
            merge(method, replace(problem, models=[one, other]))


@pytest.mark.parametrize("method", ASKING)
def test_each_query_is_counted_and_none_repeats_a_draw(method):
    problem, seeds = fleet(3), []

    def recorded(holder):
        def loss(policy, seed):
            seeds.append(seed)
            return holder.loss(policy, seed)

        return LocalDataHolder(holder.model, loss)

    problem = replace(problem, data_holders=[recorded(each) for each in problem.data_holders])
    merged = merge(method, problem, **OPTIONS[method])
    assert merged.traffic.calls == len(seeds) == len(set(seeds)) == 9
    again = len(seeds)
    merge(method, replace(problem, seed=1), **OPTIONS[method])
    assert not set(seeds[:again]) & set(seeds[again:])


@pytest.mark.parametrize("method", ASKING)
def test_tied_weights_stay_tied(method):
    """A data holder answers with one gradient for both names."""
    state = torch.nn.Linear(3, 3, bias=False).weight.detach()
    models = [{"0.weight": state * k, "1.weight": state * k} for k in (1.0, -2.0)]
    model = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, False))
    model[1].weight = model[0].weight
    example = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))

    def loss(policy, seed):
        return (policy(example[seed % 20 : seed % 20 + 1]) - example).square().mean()

    table = Symmetry.of({"0.weight": "_ _", "1.weight": "_ _"})
    holders = [LocalDataHolder(model, loss)] * 2
    problem = MergeProblem(table, models, data_holders=holders)
    merged = merge(method, problem, **OPTIONS[method]).state
    assert torch.equal(merged["0.weight"], merged["1.weight"])
    average = merge("naive_average", problem).state
    assert not torch.allclose(merged["1.weight"], average["1.weight"], atol=1e-4)


@pytest.mark.parametrize("method", ASKING)
def test_without_data_holders_they_say_what_to_give(method):
    problem = replace(fleet(2), data_holders=())
    with pytest.raises(MergeError, match=r"no data holders to answer.*Give one for each"):
        merge(method, problem, **OPTIONS[method])
