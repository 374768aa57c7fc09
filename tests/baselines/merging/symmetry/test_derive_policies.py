"""Derived tables are the hand-written ones, of every layer and of every policy."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.architectures import ARCHITECTURES
from support.policy_cases import BLUEPRINTS, made, observations

from fleet_tools.baselines.merging.symmetry.derive import derive
from fleet_tools.baselines.merging.symmetry.table import format_table, parse_table

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


@pytest.mark.parametrize("kind", sorted(ARCHITECTURES.keys() - STREAMS_FIXED_BY_HAND))
def test_the_derived_table_of_a_layer_is_the_hand_written_one(kind):
    architecture = ARCHITECTURES[kind]
    model = architecture.build()
    derived = derive(model, architecture.example(), draws=1)
    state = model.state_dict()
    assert generators(derived, state) == generators(architecture.symmetry, state)
    assert parse_table(format_table(derived)) == derived


POLICIES = sorted(BLUEPRINTS.keys() - {"mlp on frozen images"})
QUICK = ("mlp on images",)
"""Of the policies that see images, which take seconds."""

SLOW = [
    name for name in POLICIES if ("images" in name or name == "gru on all") and name not in QUICK
]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in POLICIES]
)
def test_the_derived_table_of_a_policy_is_the_hand_written_one(name):
    network = made(name)
    example = observations(BLUEPRINTS[name], 2, 3)
    derived = derive(network, (example,), output=lambda outputs: outputs[0], draws=1)
    state = network.state_dict()
    assert generators(derived, state) == generators(network.symmetry(), state)


def test_a_frozen_encoder_is_fixed_by_hand_alone():
    """Its units could be permuted; they are the same in every robot, which a graph cannot tell."""
    network = made("mlp on frozen images")
    example = observations(BLUEPRINTS["mlp on frozen images"], 2, 1)
    derived = derive(network, (example,), output=lambda outputs: outputs[0], draws=1)
    by_hand = network.symmetry().group(network.state_dict())
    assert len(derived.group(network.state_dict()).sizes) > len(by_hand.sizes)
