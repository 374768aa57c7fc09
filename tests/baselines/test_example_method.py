"""A merging method of one's own keeps the laws, and is found by its name wherever one is named."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from conftest import ROOT

from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.merging.errors import FleetError
from fleet_tools.baselines.merging.methods.registry import find, merge
from fleet_tools.baselines.merging.problem import Fleet
from fleet_tools.baselines.merging.symmetry import layers
from fleet_tools.baselines.merging.symmetry.table import Symmetry
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError, UnknownNameError

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


@pytest.mark.parametrize("astray", [0, 1])
def test_copies_of_a_model_become_its_function_even_if_one_in_five_went_astray(astray):
    model = network(0)
    group, generator = SYMMETRY.group(model), np.random.default_rng(0)
    copies = [SYMMETRY.apply(group.random(generator), model) for _ in range(5)]
    for copy in copies[:astray]:
        copy["2.bias"] = copy["2.bias"] + 100
    inputs = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
    merged = merge(METHOD, Fleet(SYMMETRY, copies))
    torch.testing.assert_close(output(merged.state, inputs), output(model, inputs))


def test_a_fleets_file_may_name_it_and_its_options():
    parts = {"data": ("data",), "policy": "mlp", "method": METHOD}
    config = parse(FleetConfig, parts | {"options": {"rounds": 30}}, "It")
    assert config.method_options() == {"rounds": 30}
    with pytest.raises(ConfigError, match="option of this method 'round'; did you mean 'rounds'"):
        parse(FleetConfig, parts | {"options": {"round": 30}}, "It")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("git_rebasn", "did you mean 'git_rebasin'.*module:function"),
        ("examples.own_method.matched_median:median", "function in examples.own_method"),
        ("examples.own_methods:median", "cannot be imported"),
        (":median", "is no `module:function`"),
    ],
)
def test_what_is_no_method_is_said_to_be_none(name, message):
    with pytest.raises((UnknownNameError, FleetError), match=message):
        find(name)
