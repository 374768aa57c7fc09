"""`fleet_merging`: models and data that do not fit are refused, with the reason."""

import pytest
import torch
from merging_support.user_models import loader, network, options_of
from torch import nn

from fleet_merging import (
    MergeProblem,
    MergeResult,
    merge,
    problem_of,
)
from fleet_merging.errors import (
    MergeError,
    MergingError,
    ModelMismatchError,
    UnknownChoiceError,
    UnsoundMergeError,
)


@pytest.mark.parametrize("how", ["nan", "reshape", "drop", "more"])
def test_what_ruins_a_parameter_is_not_returned(how):
    models = [network(seed) for seed in range(2)]
    with pytest.raises(UnsoundMergeError):
        merge("merging_support.merge_problems:poisoned", models, example=torch.randn(4, 5), how=how)


TWO = [network(0), network(1)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": loader(0)}, "one DataLoader"),
        ({"data": [loader(0)]}, "data for 1 models, but 2 models"),
        ({"data": [[], []]}, "no batches"),
        ({"data": [torch.zeros(3), torch.zeros(3)]}, "is a Tensor"),
        ({"data": [[torch.zeros(4, 5)]] * 2}, "expected a pair"),
        ({"data": [[(torch.zeros(4, 5), [1, 2])]] * 2}, "are list"),
        ({"data": [[(torch.zeros(4, 5), torch.zeros(4, dtype=torch.bool))]] * 2}, "bool"),
        ({"data": [[(torch.full((4, 5), torch.nan), torch.zeros(4).long())]] * 2}, "NaN"),
        ({"data": [[(torch.zeros(4, 7), torch.zeros(4).long())]] * 2}, "fails on the first batch"),
        ({"data": [[(torch.zeros(4, 5), torch.full((4,), 3))]] * 2}, "3 classes"),
        ({"data": [[(torch.zeros(4, 5), torch.zeros(4))]] * 2}, r"\(4, 3\) for labels \(4,\)"),
        ({"data": [loader(0), loader(1)], "loss": lambda o, y: o}, "scalar"),
        (
            {"data": [loader(0), loader(1)], "loss": lambda o, y: o.sum() * torch.inf},
            "is -?inf|nan",
        ),
        ({"model": network(0).state_dict()}, "state dict"),
    ],
)
def test_data_that_do_not_fit_are_refused_before_anything_is_merged(given, message):
    asked: list[object] = []

    def method(problem: MergeProblem) -> MergeResult:
        asked.append(problem)
        return MergeResult.network(problem.models[0])

    with pytest.raises(MergeError, match=message):
        merge(method, TWO, **given)
    assert not asked


def test_models_that_are_none_are_refused():
    with pytest.raises(MergeError, match="No models"):
        merge("naive_average", [])
    with pytest.raises(MergeError, match="No models"):
        merge("naive_average", network(0))  # pyright: ignore[reportArgumentType]
    with pytest.raises(MergeError, match="model 1 is a str"):
        merge("naive_average", [network(0), "model.pt"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ModelMismatchError):
        merge("naive_average", [network(0), network(0, classes=4)])
    with pytest.raises(ModelMismatchError, match="partition"):
        states = [each.state_dict() for each in TWO]
        merge("partition", states, model=network(0, 9), data=[loader(0), loader(1)])
    with pytest.raises(UnknownChoiceError, match="git_rebasin"):
        merge("git_rebasim", TWO)
    with pytest.raises(MergeError, match="together with a merge problem"):
        merge("git_rebasin", problem_of(TWO, example=torch.zeros(2, 5)), seed=3)


def test_every_error_of_a_foreign_model_is_typed():
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"scores": self.layer(x)}

    models = [Odd(), Odd()]
    with pytest.raises(MergingError, match="output"):
        merge("fleet_merge", models, data=[loader(0), loader(1)])
    merged = merge(
        "gated_refit", models, data=[loader(0), loader(1)], output=lambda outputs: outputs["scores"]
    )
    assert merged.model(torch.randn(4, 5)).shape == (4, 3)


class _Language(nn.Module):
    """A language model whose last layer has the weights of its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.core = nn.Embedding(11, 8), nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.core(self.embedding(tokens))[0])


def _normed() -> nn.Module:
    """Returns a model with old hooks that have computed their weights already."""
    model = nn.Sequential(
        nn.utils.weight_norm(nn.Linear(5, 8)),
        nn.ReLU(),
        nn.utils.weight_norm(nn.Linear(8, 3)),
    )
    model(torch.randn(4, 5))
    return model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("build", [_Language, _normed])
@pytest.mark.parametrize("method", ["git_rebasin", "fleet_merge", "density_gated_ensemble"])
def test_traps_of_foreign_models_work_or_are_named(build, method):
    torch.manual_seed(0)
    models = [build() for _ in range(2)]
    tokens = (torch.randint(0, 11, (4, 6)), torch.randint(0, 11, (4, 6)))
    rows = (torch.randn(8, 5), torch.randint(0, 3, (8,)))
    batch = tokens if build is _Language else rows
    try:
        merged = merge(method, models, data=[[batch]] * 2, **options_of(method))
    except MergeError as error:
        assert method == "density_gated_ensemble", error
        return
    assert bool(torch.isfinite(merged.model(batch[0])).all())
