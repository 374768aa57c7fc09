"""What training, acting and merging rely on in the network of every policy."""

from collections.abc import Mapping
from itertools import pairwise

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
import torch
from support.policy_cases import BLUEPRINTS, BODIES, STATE, made, observations, single_network
from support.processes import run_python

from fleet_merging.methods.registry import merge
from fleet_merging.problem import MergeProblem
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.layout import Scaling
from fleet_tools.dataset.header import ArraySpec
from fleet_tools.dataset.normalization import Statistics

EVERY = pytest.mark.parametrize("name", BLUEPRINTS)
ON_STATE = pytest.mark.parametrize("name", [f"{body} on state" for body in BODIES])


def actions(
    name: str,
    state: Mapping[str, torch.Tensor] | None = None,
    trajectories: Mapping[str, torch.Tensor] | None = None,
) -> torch.Tensor:
    network = made(name)
    trajectories = observations(BLUEPRINTS[name], 3, 5) if trajectories is None else trajectories
    with torch.no_grad():
        weights = network.state_dict() if state is None else dict(state)
        return torch.func.functional_call(network, weights, (trajectories,))[0]


@EVERY
def test_a_model_merged_with_its_permuted_copy_is_that_model(name):
    state, symmetry = made(name).state_dict(), made(name).symmetry()
    copy = symmetry.apply(symmetry.group(state).random(np.random.default_rng(1)), state)
    merged = merge("git_rebasin", MergeProblem(symmetry, [state, copy])).state
    torch.testing.assert_close(actions(name, merged), actions(name), rtol=1e-4, atol=1e-4)


@EVERY
@pytest.mark.parametrize("cuts", [range(8), (0, 1, 5, 7)])
def test_parts_of_a_trajectory_give_the_same_as_a_pass_over_it(name, cuts):
    network = made(name)
    trajectories = observations(BLUEPRINTS[name], 2, 7)  # beyond the Transformer's context
    hidden, parts = None, []
    with torch.no_grad():
        whole, last = network(trajectories)
        for first, end in pairwise(cuts):
            now = {key: rows[:, first:end] for key, rows in trajectories.items()}
            part, hidden = network(now, hidden)
            parts.append(part)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(hidden, last, rtol=1e-4, atol=1e-5)


@ON_STATE
def test_no_action_depends_on_the_future_or_another_trajectory(name):
    """So trajectories of different lengths may be padded."""
    trajectories = observations(BLUEPRINTS[name], 2, 8)
    other = {key: rows.clone() for key, rows in trajectories.items()}
    for rows in other.values():
        rows[0, 5:] = 9.0
    before, after = actions(name, None, trajectories), actions(name, None, other)
    assert torch.equal(before[0, :5], after[0, :5])
    assert torch.equal(before[1], after[1])
    assert not torch.equal(before[0, 5:], after[0, 5:])


def test_a_transformer_remembers_no_more_than_it_attends_to():
    name = "transformer on state"
    with torch.no_grad():
        for steps, remembered in ((1, 1), (2, 2), (3, 2), (9, 2)):  # at most context - 1
            _, hidden = made(name)(observations(BLUEPRINTS[name], 2, steps))
            assert {state.shape for state in hidden} == {(2, 2, 2, remembered, 8)}


@ON_STATE
def test_memory_reaches_as_far_as_documented(name):
    reach = {"mlp": 0, "linear": 0, "transformer": 2 * (3 - 1)}.get(
        name.split()[0]
    )  # layers (context - 1)
    trajectories = observations(BLUEPRINTS[name], 1, 9)
    other = {key: rows.clone() for key, rows in trajectories.items()}
    for rows in other.values():
        rows[0, 0] += 1.0
    changed = (actions(name, None, trajectories) != actions(name, None, other))[0].any(-1)
    expected = [reach is None or t <= reach for t in range(9)]
    assert changed.tolist() == expected


@EVERY
def test_weights_follow_from_the_seed_and_from_nothing_else(name):
    before = torch.random.get_rng_state()
    again, other = BLUEPRINTS[name].create(0), BLUEPRINTS[name].create(1)
    assert torch.equal(before, torch.random.get_rng_state())
    for key, tensor in made(name).state_dict().items():
        assert torch.equal(tensor, again.state_dict()[key])
    for key in ("head.weight", "head.output.weight"):
        if key in other.state_dict():
            assert not torch.equal(made(name).state_dict()[key], other.state_dict()[key])


@EVERY
def test_every_weight_that_is_not_frozen_can_learn(name):
    network = BLUEPRINTS[name].create().train()
    network(observations(BLUEPRINTS[name], 3, 4))[0].square().sum().backward()
    for key, parameter in network.named_parameters():
        frozen = "frozen" in name and key.startswith("images.")
        learns = parameter.grad is not None and bool(parameter.grad.any())
        # The bias of keys adds the same to every score of a query, which softmax removes.
        assert learns != frozen or key.endswith("key.bias"), key


def test_numbers_are_scaled_as_by_the_statistics_of_data():
    generator = np.random.default_rng(3)

    def statistics(array: ArraySpec) -> Statistics:
        n = int(np.prod(array.shape))
        mean, spread = generator.normal(size=n), generator.uniform(0.1, 3, n)
        spread[2] = 0.0  # constant: not divided, whatever the rounding error of its deviation
        low, high, std = mean - spread, mean + spread, np.where(spread == 0, 1e-9, spread / 2)
        return Statistics(
            shape=array.shape,
            count=9,
            mean=tuple(mean),
            std=tuple(std),
            min=tuple(low),
            max=tuple(high),
        )

    of_data = {name: statistics(array) for name, array in STATE.items()}
    plain = BLUEPRINTS["mlp on state"]
    scaled = Blueprint.of(plain.config, STATE, plain.action, Scaling.of(of_data))
    trajectories = observations(scaled, 2, 3)
    by_data = {name: of_data[name].normalize(rows) for name, rows in trajectories.items()}
    with torch.no_grad():
        scaled_actions, _ = scaled.create()(trajectories)
    torch.testing.assert_close(scaled_actions, actions("mlp on state", None, by_data))


@EVERY
def test_training_in_bfloat16_is_training_up_to_its_precision(name):
    network = BLUEPRINTS[name].create().eval()
    with torch.autocast("cpu", torch.bfloat16):
        rounded, _ = network(observations(BLUEPRINTS[name], 3, 5))
    rounded.float().square().sum().backward()
    torch.testing.assert_close(rounded.float(), actions(name), rtol=0.1, atol=0.1)


def test_values_are_imported_without_pytorch():
    code = """
import json, sys
import fleet_tools.baselines.policies.blueprint
print(json.dumps([name for name in ("torch", "pydrake") if name in sys.modules]))
"""
    assert run_python(code) == []


def test_a_policy_reads_only_what_it_is_told_to():
    config = PolicyConfig(body=BODIES["mlp"], reads=("object_keypoints",))
    blueprint = Blueprint.of(config, STATE, BLUEPRINTS["mlp on state"].action)
    assert list(blueprint.observation) == ["object_keypoints"]
    trajectories = observations(BLUEPRINTS["mlp on state"], 1, 1)
    network = single_network(blueprint)
    with torch.no_grad():
        before, _ = network(trajectories)
        after, _ = network(trajectories | {"joint_position": torch.ones(1, 1, 7)})
    assert torch.equal(before, after)
    assert network.features(trajectories).shape == (1, 1, 6)
