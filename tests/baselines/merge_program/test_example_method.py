"""A user's own merging method obeys the laws, and is found by its name."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from support.processes import ROOT

from fleet_merging.errors import MergeError, UnknownChoiceError
from fleet_merging.methods.registry import find, merge
from fleet_merging.problem import MergeProblem
from fleet_merging.symmetry import layers
from fleet_merging.symmetry.table import Symmetry
from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError

METHOD = "examples.own_method.matched_median:matched_median"
SYMMETRY = Symmetry.of(layers.linear("0", "_in", "h"), layers.linear("2", "h", "_out"))


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def network(seed):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"0.weight": (16, 3), "0.bias": (16,), "2.weight": (2, 16), "2.bias": (2,)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def output(state, inputs):
    hidden = torch.relu(inputs @ state["0.weight"].T + state["0.bias"])
    return hidden @ state["2.weight"].T + state["2.bias"]


@pytest.mark.parametrize("outliers", [0, 1])
def test_copies_of_a_model_merge_into_its_function_despite_one_outlier_in_five(outliers):
    model = network(0)
    group, generator = SYMMETRY.group(model), np.random.default_rng(0)
    copies = [SYMMETRY.apply(group.random(generator), model) for _ in range(5)]
    for copy in copies[:outliers]:
        copy["2.bias"] = copy["2.bias"] + 100
    inputs = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
    merged = merge(METHOD, MergeProblem(SYMMETRY, copies))
    torch.testing.assert_close(output(merged.state, inputs), output(model, inputs))


def test_the_file_of_a_fleet_may_name_it_and_its_options():
    parts = {"data": ("data",), "policy": "mlp", "method": METHOD}
    config = parse(FleetConfig, parts | {"options": {"rounds": 30}}, "It")
    assert config.method_options() == {"rounds": 30}
    with pytest.raises(ConfigError, match=r"method: 'round'\. Did you mean 'rounds'"):
        parse(FleetConfig, parts | {"options": {"round": 30}}, "It")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("git_rebasn", "Did you mean 'git_rebasin'.*module:function"),
        ("examples.own_method.matched_median:median", "function in examples.own_method"),
        ("examples.own_methods:median", "cannot be imported"),
        (":median", "is not of the form `module:function`"),
    ],
)
def test_unknown_methods_are_refused(name, message):
    with pytest.raises((UnknownChoiceError, MergeError), match=message):
        find(name)
