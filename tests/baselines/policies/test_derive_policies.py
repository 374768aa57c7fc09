"""Derived tables are the hand-written ones, of every layer and of every policy."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from merging_support.architectures import ACTIVATIONS, ARCHITECTURES
from support.policy_cases import BLUEPRINTS, made, observations

from fleet_merging.symmetry import layers as lay
from fleet_merging.symmetry.derive import derive
from fleet_merging.symmetry.table import Symmetry

STREAMS_FIXED_BY_HAND = {"transformer", "transformer of whole heads", "residual"}
"""Tables that leave a residual stream or units fixed that may be permuted."""


def generators(symmetry, state):
    """Returns what each name's rotation does to a model of numbered entries, without the names."""
    group = symmetry.group(state)
    numbered = {name: torch.arange(t.numel()).reshape(t.shape) for name, t in state.items()}
    moved = []
    for name, index in group.identity().items():
        element = group.identity() | {name: np.roll(index, 1, axis=-1)}
        permuted = symmetry.apply(element, numbered)
        moved.append([permuted[key].flatten().tolist() for key in sorted(state)])
    return sorted(moved)


SLOW_KINDS = {f"mlp {each.__name__}" for each in ACTIVATIONS if each is not torch.nn.ReLU}
SLOW_KINDS |= {kind for kind in ARCHITECTURES if kind.endswith("without bias")}
"""Those that others hold: all activations in one network, and the layers with biases."""


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.slow] * (kind in SLOW_KINDS))
        for kind in sorted(ARCHITECTURES.keys() - STREAMS_FIXED_BY_HAND)
    ],
)
def test_the_derived_table_of_a_layer_is_the_hand_written_one(kind):
    architecture = ARCHITECTURES[kind]
    model = architecture.build()
    derived = derive(model, architecture.example(), draws=1)
    state = model.state_dict()
    assert generators(derived, state) == generators(architecture.symmetry, state)
    assert Symmetry.of(derived.table()) == derived


def test_the_derived_table_of_all_activations_is_the_hand_written_one():
    layers: list[Any] = [torch.nn.Linear(4, 4)]
    for activation in ACTIVATIONS:
        layers += [activation(), torch.nn.Linear(4, 4)]
    model = torch.nn.Sequential(*layers)
    names = [str(k) for k, layer in enumerate(layers) if isinstance(layer, torch.nn.Linear)]
    axes = ["_in", *(f"h{name}" for name in names[:-1]), "_out"]
    slopes = [str(k) for k, layer in enumerate(layers) if isinstance(layer, torch.nn.PReLU)]
    symmetry = Symmetry.of(lay.mlp(names, axes), {f"{name}.weight": "_" for name in slopes})
    derived = derive(model, torch.zeros(2, 4), draws=1)
    state = model.state_dict()
    assert generators(derived, state) == generators(symmetry, state)
    assert len(symmetry.group(state).sizes) == len(ACTIVATIONS)


POLICIES = sorted(BLUEPRINTS.keys() - {"mlp on frozen images"})
QUICK = ("mlp on images", "mlp on clouds")
"""Of the policies that see images or clouds, whose bodies have quick tests on states."""

SLOW = {name for name in POLICIES if name.endswith(("images", "clouds", "on all"))} - {*QUICK}
SLOW |= {"token of the task", "gru with diffusion"}  # as film of the task, mlp with flow


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in POLICIES]
)
def test_the_derived_table_of_a_policy_is_the_hand_written_one(name):
    network = made(name)
    example = observations(BLUEPRINTS[name], 2, 3)
    derived = derive(network, (example,), output=lambda outputs: outputs[0], draws=1)
    state = network.state_dict()
    assert generators(derived, state) == generators(network.symmetry(), state)


@pytest.mark.slow
def test_a_frozen_encoder_is_fixed_by_hand_alone():
    """Its units could be permuted; they are the same in every robot, which a graph cannot tell."""
    network = made("mlp on frozen images")
    example = observations(BLUEPRINTS["mlp on frozen images"], 2, 1)
    derived = derive(network, (example,), output=lambda outputs: outputs[0], draws=1)
    by_hand = network.symmetry().group(network.state_dict())
    assert len(derived.group(network.state_dict()).sizes) > len(by_hand.sizes)
