"""What methods tell of themselves: methods by layers, each cell tried, refusals, the README."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from merging_support.user_models import options_of
from torch import nn

from fleet_merging import METHODS, MergeProblem, merge, problem_of
from fleet_merging.errors import MergeError
from fleet_merging.methods.facts import ENSEMBLE, LAYERS
from fleet_merging.modules import copied

README = Path(__file__).parents[2] / "README.md"


class Net(nn.Module):
    """A few layers, some of which take more than one argument, and a last linear one."""

    def __init__(self, read, **layers) -> None:
        super().__init__()
        self.read = read
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.read(self, x)


def recurrent_conv(net: Any, x: torch.Tensor) -> torch.Tensor:
    hidden = torch.zeros(len(x), 5, 4, 4)
    for step in range(x.shape[1]):
        hidden = torch.tanh(net.inputs(x[:, step]) + net.hidden(hidden))
    return net.out(hidden.flatten(1))


def attention(net: Any, x: torch.Tensor) -> torch.Tensor:
    x = net.into(x)
    return net.out(x + net.layer(x, x, x, need_weights=False)[0])


def normed(layer: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 8), layer, nn.ReLU(), nn.Linear(8, 2))


MODELS = {
    "Linear": (lambda: normed(nn.Linear(8, 8)), (8, 3)),
    "Conv": (
        lambda: nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2)),
        (8, 2, 4, 4),
    ),
    "BatchNorm": (lambda: normed(nn.BatchNorm1d(8)), (8, 3)),
    "LayerNorm": (lambda: normed(nn.LayerNorm(8)), (8, 3)),
    "Embedding": (
        lambda: nn.Sequential(nn.Embedding(7, 6), nn.Tanh(), nn.Linear(6, 2)),
        (8, 5),
    ),
    "RNN": (
        lambda: Net(
            lambda net, x: net.out(net.core(x)[0]),
            core=nn.GRU(3, 6, batch_first=True),
            out=nn.Linear(6, 2),
        ),
        (8, 5, 3),
    ),
    "attention": (
        lambda: Net(
            attention,
            into=nn.Linear(3, 8),
            layer=nn.MultiheadAttention(8, 2, batch_first=True),
            out=nn.Linear(8, 2),
        ),
        (8, 5, 3),
    ),
    "recurrent Conv": (
        lambda: Net(
            recurrent_conv,
            inputs=nn.Conv2d(2, 5, 3, padding=1),
            hidden=nn.Conv2d(5, 5, 3, padding=1),
            out=nn.Linear(80, 2),
        ),
        (4, 3, 2, 4, 4),
    ),
}
"""For each kind of layer: the smallest network that has one, and the shape of its inputs."""


@cache
def problem(layer: str) -> MergeProblem:
    """Returns the problem of merging three models with all that any method needs."""
    make, shape = MODELS[layer]
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    inputs = (inputs * 10).long() % 7 if layer == "Embedding" else inputs
    torch.manual_seed(0)
    *models, base, teacher = (make().eval() for _ in range(5))
    for parameter in (each for model in models for each in model.parameters()):
        parameter.data += 0.1 * torch.rand_like(parameter)
    data = [[(inputs, teacher(inputs).detach())]] * 3
    return problem_of(models, data=data, base=base, inputs=[inputs], method="git_rebasin")


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", METHODS)
def test_what_the_table_says_of_a_method_and_a_layer_is_true(name, layer):
    given = problem(layer)
    if layer in METHODS[name].layers:
        result = merge(name, given, **options_of(name))
        outputs = result.model(*given.example)
        assert bool(torch.isfinite(outputs).all()) and outputs.shape[-1] == 2
        assert result.is_ensemble == (METHODS[name].returns == ENSEMBLE)
        assert given.module is not None
        size = sum(each.numel() for each in given.module.parameters())
        assert result.parameters == size * (3 if result.is_ensemble else 1)
        return
    # What one method cannot merge others can, by the table and in fact.
    with pytest.raises(MergeError, match=rf"`{name}` cannot merge .*; these can: ") as caught:
        merge(name, given)
    assert layer in str(caught.value) or name == "lora"  # which merges no models, but adapters
    able = str(caught.value).partition("these can: ")[2].partition(". ")[0].split(", ")
    assert able == [n for n, each in METHODS.items() if n != name and layer in each.layers]


def test_a_refusal_names_the_layer_and_the_methods_that_the_problem_has_data_for():
    torch.manual_seed(0)
    models = [MODELS["BatchNorm"][0]().eval() for _ in range(2)]
    without = problem_of(models, example=torch.randn(4, 3), method="structured_compression")
    with pytest.raises(MergeError) as caught:
        merge("structured_compression", without)
    able = [n for n, each in METHODS.items() if "BatchNorm" in each.layers and not each.needs]
    assert str(caught.value) == (
        f"`structured_compression` cannot merge BatchNorm (`1`); these can: {', '.join(able)}. "
        "Layers that all models share, such as a frozen encoder, are kept."
    )
    assert "git_rebasin" in able and "regmean" not in able


def test_layers_of_ones_own_and_groups_are_refused_by_name():
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.rand(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    torch.manual_seed(0)
    grouped = nn.Conv2d(2, 4, 3, groups=2)
    for build, shape, message in (
        (lambda: normed(Scale()), (4, 3), "1.factor, which belong to no affine map; these can: "),
        (
            lambda: nn.Sequential(copied(grouped), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)),
            (4, 2, 4, 4),
            "'0', whose matrix has groups or heads; these can: ",
        ),
    ):
        models: list[Any] = [build().eval() for _ in range(2)]
        x = torch.randn(shape)
        for model in models:
            model[0].weight.data += torch.rand_like(model[0].weight)
        given = problem_of(
            models, data=[[(x, torch.rand(4, 2))]] * 2, method="structured_compression"
        )
        with pytest.raises(
            MergeError, match=re.escape(f"`structured_compression` cannot merge {message}")
        ):
            merge("structured_compression", given)
        merge("regmean", given)


def row(cells) -> str:
    return f"| {' | '.join(cells)} |"


def table_of_methods() -> str:
    lines = [row(["method", "name", "source", "start", "each data holder is asked", "result"])]
    lines.append("|---|---|---|---|---|---|")
    for name, each in METHODS.items():
        cells = (f"`{name}`", each.title, each.source, each.start, each.asks, each.returns)
        lines.append(row(cells))
    return "\n".join(lines)


def table_of_layers() -> str:
    """Returns the table with one row for methods that take the same layers."""
    lines = [row(["method", *LAYERS]), "|---|" + ":-:|" * len(LAYERS)]
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, each in METHODS.items():
        groups.setdefault(each.layers, []).append(f"`{name}`")
    for layers, names in sorted(groups.items(), key=lambda each: len(each[0])):
        first = ", ".join(names) if len(layers) < len(LAYERS) else "all others"
        lines.append(row([first, *("yes" if layer in layers else "no" for layer in LAYERS)]))
    return "\n".join(lines)


@pytest.mark.parametrize("table", [table_of_methods, table_of_layers])
def test_the_readme_has_the_tables(table):
    expected = table()
    assert expected in README.read_text(), f"README.md needs this table:\n{expected}"


def test_the_code_of_the_readme_runs():
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len([line for line in code.splitlines() if line]) <= 15
    found: dict[str, object] = {}
    exec(compile(code, str(README), "exec"), found)
    losses = found["losses"]
    assert isinstance(losses, dict)
    assert losses["git_rebasin"] < losses["naive_average"]


def test_facts_are_consistent():
    for name, each in METHODS.items():
        assert each.name == name and each.summary and "\n" not in each.summary
        assert each.start in ("any", "common") and set(each.layers) <= set(LAYERS)
    assert METHODS["density_gated_ensemble"].returns == ENSEMBLE
    assert METHODS["fleet_merge_soft"].options["soft"] is True
    assert METHODS["ties"].start == "common" and not METHODS["ties"].permutes
