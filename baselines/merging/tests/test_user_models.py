"""`fleet_merging`: any models with plain data, without a simulator."""

import copy
import itertools
import os
import socket
import threading
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch
from merging_support.user_models import METHODS, loader, network, options_of
from torch import nn

import fleet_merging
from fleet_merging import (
    LocalDataHolder,
    MergeProblem,
    MergeResult,
    Symmetry,
    merge,
    problem_of,
)
from fleet_merging.errors import (
    DerivationError,
    MergeError,
    SymmetryWarning,
    UnknownChoiceError,
)


@cache
def table() -> Symmetry:
    """Returns the derived table of `network`."""
    return fleet_merging.derive(network(0), torch.randn(4, 5))


@pytest.mark.parametrize(
    ("name", "labels"),
    [("git_rebasin", "classes"), ("fed_sgd", "classes"), ("gated_refit", "targets")],
)
def test_modules_are_merged_with_loaders(name, labels):
    models = [network(seed) for seed in range(3)]
    before = [copy.deepcopy(model.state_dict()) for model in models]
    data = [loader(seed, labels) for seed in range(3)]
    result = merge(name, models, data=data, symmetry=table(), **options_of(name))
    inputs = torch.randn(7, 5)
    outputs = result.model(inputs)
    assert outputs.shape == (7, 3) and bool(torch.isfinite(outputs).all())
    assert result.is_ensemble == (METHODS[name].returns == "an ensemble")
    assert result.parameters == (3 if result.is_ensemble else 1) * sum(
        each.numel() for each in models[0].parameters()
    )
    for model, kept in zip(models, before, strict=True):
        assert all(torch.equal(model.state_dict()[key], kept[key]) for key in kept)


@pytest.mark.parametrize("classes", [True, False])
def test_losses_and_gradients_are_those_of_plain_pytorch(classes):
    """By another route: one pass over all rows, with an optimizer's gradient."""
    model, batches = network(0), list(loader(1, "classes" if classes else "targets", 50))
    problem = problem_of([model, network(1)], data=[batches, batches], method="fed_sgd")
    holder = problem.data_holders[0]
    assert isinstance(holder, LocalDataHolder)
    inputs, labels = (torch.cat(each) for each in zip(*batches, strict=True))
    loss = nn.CrossEntropyLoss() if classes else nn.MSELoss()
    expected = loss(model(inputs), labels)
    torch.testing.assert_close(holder.loss(model, None), expected)
    drawn = {float(holder.loss(model, seed).detach()) for seed in range(20)}
    each = sorted(float(loss(model(x), y).detach()) for x, y in batches)
    assert sorted(drawn) == pytest.approx(each)


def test_models_states_and_a_problem_give_the_same_merge():
    models, data = [network(seed) for seed in range(3)], [loader(seed) for seed in range(3)]
    merged = merge("regmean", models, data=data, averaging_weights=[1, 2, 3], seed=4)
    states = [model.state_dict() for model in models]
    again = merge(
        "regmean", states, data=data, model=models[2], averaging_weights=[1, 2, 3], seed=4
    )
    problem = problem_of(models, data=data, averaging_weights=[1, 2, 3], seed=4, method="regmean")
    for other in (again, merge("regmean", problem)):
        assert all(torch.equal(merged.state[name], other.state[name]) for name in merged.state)
    assert isinstance(problem, MergeProblem)


def test_permuted_copies_are_recognized_by_a_derived_table():
    model, example = network(0), torch.randn(6, 5)
    symmetry = fleet_merging.derive(model, example)
    group = symmetry.group(model.state_dict())
    generator = np.random.default_rng(0)
    copies = [symmetry.apply(group.random(generator), model.state_dict()) for _ in range(3)]
    merged = merge("git_rebasin", copies, model=model, example=example).model
    torch.testing.assert_close(merged(example), model(example))


def test_own_methods_are_functions_or_names():
    def loudest(problem: MergeProblem, *, power: float = 1.0) -> MergeResult:
        return MergeResult.network(problem.models[int(power)])

    models, example = [network(seed) for seed in range(2)], torch.randn(6, 5)
    merged = merge(loudest, models, example=example, power=1.0)
    torch.testing.assert_close(merged.model(example), models[1](example))
    with pytest.raises(UnknownChoiceError, match="power"):
        merge(loudest, models, example=example, powr=1.0)
    named = merge("merging_support.merge_problems:poisoned", models, example=example, how="nothing")
    average = merge("naive_average", models)
    assert all(torch.equal(named.state[name], average.state[name]) for name in named.state)


def test_only_methods_that_permute_nothing_work_without_an_architecture():
    states = [network(seed).state_dict() for seed in range(2)]
    merged = merge("ties", states, base=network(9).state_dict())
    with pytest.raises(MergeError, match="module"):
        _ = merged.model
    with pytest.raises(MergeError, match="architecture"):
        merge("git_rebasin", states, example=torch.randn(4, 5))
    with pytest.raises(MergeError, match="example"):
        merge("git_rebasin", [network(0), network(1)])
    with pytest.raises(MergeError, match="state dicts cannot be run"):
        merge("naive_average", states, data=[loader(0), loader(1)])


TWO = [network(0), network(1)]


def test_an_iterator_is_read_once_and_no_more():
    data = [iter(list(loader(seed))) for seed in range(2)]
    assert merge("regmean", TWO, data=data).traffic.calls == 2
    with pytest.raises(MergeError, match="iterator"):
        merge("regmean", TWO, data=data)


@pytest.mark.parametrize("wrap", [nn.DataParallel, partial(torch.compile, backend="eager")])
def test_wrappers_are_unwrapped(wrap):
    expected = merge("git_rebasin", TWO, example=torch.randn(4, 5)).state
    found = merge("git_rebasin", [wrap(each) for each in TWO], example=torch.randn(4, 5)).state
    assert found.keys() == expected.keys()


def test_tied_weights_under_one_name_are_found_again():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.into, self.out = nn.Linear(5, 8), nn.Linear(8, 5, bias=False)
            self.out.weight = nn.Parameter(self.into.weight.detach().T.clone())
            self.again = nn.Linear(5, 8)
            self.again.weight = self.into.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.into(x) + self.again(x))

    models = [Tied(), Tied()]
    states = [dict(each.state_dict()) for each in models]
    for state in states:
        del state["again.weight"]
    merged = merge("git_rebasin", states, model=models[0], example=torch.randn(4, 5))
    assert torch.equal(merged.state["again.weight"], merged.state["into.weight"])


def test_extra_state_and_counts_of_foreign_models_do_not_matter(monkeypatch):
    class Noted(nn.BatchNorm1d):
        def get_extra_state(self) -> dict[str, str]:
            return {"version": "1"}

        def set_extra_state(self, state: object) -> None:
            pass

    def build(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(5, 8), Noted(8), nn.ReLU(), nn.Linear(8, 3))
        for _ in range(seed + 1):
            model(torch.randn(20, 5))
        return model.eval()

    models = [build(0), build(3)]
    for given in (models, [each.state_dict() for each in models]):
        merged = merge("git_rebasin", given, model=models[0], data=[loader(0), loader(1)])
        # Statistics are those of the data of all, whatever the models' own.
        inputs = torch.cat([x for x, _ in itertools.chain(loader(0), loader(1))])
        hidden = merged.model[0](inputs)  # pyright: ignore[reportIndexIssue]
        torch.testing.assert_close(
            merged.state["1.running_mean"], hidden.mean(0), rtol=1e-4, atol=1e-5
        )
        assert bool((merged.state["1.running_var"] > 0).all())
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))  # the checkout
    median = "examples.own_method.matched_median:matched_median"
    assert merge(median, models, data=[loader(0), loader(1)]).state["1.num_batches_tracked"] >= 1


@pytest.mark.parametrize(
    ("shape", "labels"),
    [((4, 6, 3), (4, 6)), ((4, 3, 6), (4, 6)), ((4, 3, 2, 5), (4, 2, 5))],
)
def test_class_scores_of_sequences_and_images_are_recognized(shape, labels):
    from fleet_merging.loaders import LabelledInputs, loss_of

    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(shape, generator=generator)
    targets = torch.randint(0, 3, labels, generator=generator)
    targets[0, 0] = -100
    scores = outputs.movedim(-1, 1) if shape[-1] == 3 else outputs
    expected = nn.functional.cross_entropy(scores, targets)
    torch.testing.assert_close(loss_of(outputs, LabelledInputs((), targets), None), expected)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError):
        _ = fleet_merging.nothing  # pyright: ignore[reportAttributeAccessIssue]
    assert set(dir(fleet_merging)) >= {"merge", "METHODS", "derive", "check"}


def with_attribute(value):
    model = network(0)
    model.kept = value
    return model


UNCOPYABLE = {
    "lock": threading.Lock,
    "locks in a list": lambda: [threading.RLock(), {"event": threading.Event()}],
    "generator": lambda: (i for i in range(3)),
    "file": lambda: open(os.devnull),  # noqa: SIM115
    "socket": socket.socket,
    "module of Python": lambda: os,
    "tensor that was computed": lambda: {"last": network(0)(torch.ones(1, 5))},
    "distribution that was computed": lambda: torch.distributions.Normal(
        network(0)(torch.ones(1, 5)), 1.0
    ),
}


@pytest.mark.parametrize("kind", UNCOPYABLE)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_parts_that_cannot_be_copied_do_not_matter(kind):
    plain, x = [network(seed) for seed in range(2)], torch.randn(4, 5)
    odd = [with_attribute(UNCOPYABLE[kind]()) for _ in range(2)]
    for one, other in zip(odd, plain, strict=True):
        one.load_state_dict(other.state_dict())
    for method in ("naive_average", "git_rebasin"):
        merged = merge(method, odd, example=x).model
        assert torch.equal(merged(x), merge(method, plain, example=x).model(x))
        own, given = merged.get_parameter("0.weight"), odd[0].get_parameter("0.weight")
        assert own.data_ptr() != given.data_ptr()


class Alone(nn.Linear):
    """A layer that forbids copies."""

    def __deepcopy__(self, memo):
        raise RuntimeError("one of a kind")


class Scaled(torch.Tensor):
    """Integers with a scale, as libraries of quantization keep weights."""

    @staticmethod
    def __new__(cls, codes):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)

    def __init__(self, codes):
        super().__init__()
        self.codes = codes

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return Scaled(next(each.codes for each in args if isinstance(each, Scaled)))


def scaled():
    model = network(0)
    codes = torch.ones(model.get_parameter("0.weight").shape, dtype=torch.int8)
    model[0].weight = nn.Parameter(Scaled(codes), requires_grad=False)
    return model


def sparse():
    model = network(0)
    model[0].weight = nn.Parameter(model.get_parameter("0.weight").detach().to_sparse())
    return model


UNMERGEABLE = {
    "quantized": (
        lambda: torch.ao.quantization.quantize_dynamic(network(0), {nn.Linear}),
        "packed quantized weights.*quantize the merged one",
    ),
    "quantized tensors": (scaled, "0.weight as a Scaled, .*dequantize"),
    "meta": (lambda: network(0).to("meta"), r"\(meta\)\. Load the weights"),
    "lazy": (lambda: nn.Sequential(nn.LazyLinear(3)), "without a shape. Run the model once"),
    "sparse": (sparse, "torch.sparse_coo. Make it dense"),
    "alone": (lambda: nn.Sequential(Alone(5, 3)), "cannot be copied .*one of a kind.*Alone of 0"),
}


@pytest.mark.parametrize("kind", UNMERGEABLE)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_models_without_numbers_to_average_are_refused_in_a_line(kind):
    make, message = UNMERGEABLE[kind]
    model, x = make(), torch.randn(4, 5)
    for attempt in (
        lambda: merge("naive_average", [model, model], example=x).model,
        lambda: merge("git_rebasin", [model, model], example=x),
        lambda: fleet_merging.derive(model, x),
    ):
        with pytest.raises(MergeError, match=message) as refusal:
            attempt()
        assert len(str(refusal.value)) < 300 and "\n" not in str(refusal.value)


class Unlisted(nn.Module):
    """A network with a layer that is in no state dict."""

    def __init__(self):
        super().__init__()
        self.into, self.others = nn.Linear(5, 8), [nn.Linear(8, 3)]

    def forward(self, x):
        return self.others[0](self.into(x))


def test_learned_parameters_outside_of_the_state_dict_are_refused():
    with pytest.raises(DerivationError, match=r"not in its state dict, .* \(3, 8\)"):
        merge("git_rebasin", [Unlisted(), Unlisted()], example=torch.randn(4, 5))


@pytest.mark.parametrize("stored", [True, False])
def test_models_that_scale_by_other_statistics_are_averaged_with_a_warning(stored):
    models = [nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)) for _ in range(2)]
    for mean, model in enumerate(models):
        model.register_buffer("mean", torch.full((3,), float(mean)), persistent=stored)
    with pytest.warns(SymmetryWarning, match="buffers mean differ.*same statistics"):
        merge("naive_average", models, example=torch.randn(6, 3))
