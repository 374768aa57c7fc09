"""Networks of all configurations: tables, memory, conditioning on the task, and a hidden task."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.policy_cases import (
    ACTION,
    BLUEPRINTS,
    BODIES,
    CONDITIONED,
    PADDED,
    STATE,
    made,
    observations,
    single_network,
)
from support.processes import run_python

from fleet_merging.methods.registry import merge
from fleet_merging.problem import MergeProblem
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from fleet_tools.baselines.policies.config import GateConfig, PolicyConfig
from fleet_tools.baselines.policies.layout import LayoutError, Scaling
from fleet_tools.baselines.policies.part_configs import MLPConfig
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.config.values import parse
from fleet_tools.dataset.header import ArraySpec
from fleet_tools.dataset.normalization import Statistics
from fleet_tools.errors import ConfigError

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


FILM, TOKEN = (BLUEPRINTS[f"{name} of the task"] for name in CONDITIONED)


def answered(
    blueprint: Blueprint,
    trajectories: dict[str, torch.Tensor],
    state: dict[str, torch.Tensor] | None = None,
) -> torch.Tensor:
    network = blueprint.create()
    if state is not None:
        network.load_state_dict(state)
    with torch.no_grad():
        return network(trajectories)[0]


def test_a_modulation_of_zero_is_the_plain_perceptron():
    plain = Blueprint.of(PolicyConfig(body=MLPConfig(layers=2, width=24)), PADDED, ACTION)
    trajectories = observations(plain, 2, 3)
    state = FILM.create().state_dict() | plain.create().state_dict()
    assert torch.equal(answered(FILM, trajectories, state), answered(plain, trajectories))
    assert not state["body.film.0.weight"].any()
    assert set(state) - set(plain.create().state_dict()) == {
        f"body.film.{i}.weight" for i in (0, 1)
    }
    state["body.film.1.weight"][0, 0] = 1.0
    assert not torch.equal(answered(FILM, trajectories, state), answered(plain, trajectories))


def test_scale_and_shift_act_on_the_units_of_each_layer():
    trajectories = observations(FILM, 1, 1)
    state = FILM.create().state_dict()
    for i in (0, 1):
        state[f"body.film.{i}.weight"] = 0.1 * torch.randn(
            48, 6, generator=torch.Generator().manual_seed(i)
        )
    names = sorted(trajectories)
    x = torch.cat([trajectories[name].flatten() for name in names])
    task = torch.cat([trajectories[name][0, 0, :, -1] for name in names if "keypoints" in name])
    for i in (0, 1):
        scale, shift = (state[f"body.film.{i}.weight"] @ task).split(24)
        units = state[f"body.layers.{i}.weight"] @ x + state[f"body.layers.{i}.bias"]
        x = torch.relu((1 + scale) * units + shift)
    expected = state["head.weight"] @ x + state["head.bias"]
    torch.testing.assert_close(answered(FILM, trajectories, state)[0, 0], expected)


def test_all_steps_attend_to_the_task_of_the_first_one():
    trajectories = observations(TOKEN, 2, 12)  # far beyond the context, 2 layers of 3 steps
    network = made("token of the task")
    with torch.no_grad():
        features = network.features(trajectories)
        first, later = features.clone(), features.clone()
        first[:, 0, -6:] += 1.0
        later[:, 1:, -6:] += 1.0
        expected = network.decide(features)[0]
        assert (network.decide(first)[0] != expected).any(-1).all()
        assert torch.equal(network.decide(later)[0], expected)


@pytest.mark.parametrize(
    ("name", "tokens"), [("transformer on state", 0), ("token of the task", 1)]
)
def test_a_transformer_remembers_its_token_and_no_more_steps_than_it_attends_to(name, tokens):
    with torch.no_grad():
        for steps, remembered in ((1, 1), (2, 2), (3, 2), (9, 2)):  # at most context - 1
            _, hidden = made(name)(observations(BLUEPRINTS[name], 2, steps))
            assert {state.shape for state in hidden} == {(2, 2, 2, tokens + remembered, 8)}


@pytest.mark.parametrize("body", CONDITIONED.values())
def test_without_padded_keypoints_nothing_says_which_task_it_is(body):
    with pytest.raises(LayoutError, match="obs_mode=multitask_state"):
        Blueprint.of(PolicyConfig(body=body), STATE, ACTION)
    with pytest.raises(LayoutError, match="None of joint_position identifies the task"):
        Blueprint.of(PolicyConfig(body=body, reads=("joint_position",)), PADDED, ACTION)


TASK = ArraySpec(
    kind="one_hot", shape=(3,), dtype="float32", unit="one-hot", frame=None, entries=("a", "b", "c")
)
LAYOUT = {**PADDED, "task": TASK}
ROWS = {"tool_keypoints": 2, "object_keypoints": 1}
"""Number of rows that all tasks have, of three."""


def scaling_of_data() -> Scaling:
    """Returns the scaling of data of several tasks."""
    mean: dict[str, Any] = {"joint_position": np.full(7, 0.3), "task": np.full(3, 1 / 3)}
    std: dict[str, Any] = {"joint_position": np.full(7, 1.7), "task": np.full(3, 0.5)}
    for name, rows in ROWS.items():
        mean[name], std[name] = np.full((3, 4), 0.2), np.full((3, 4), 0.6)
        mean[name][:rows, 3], std[name][:rows, 3] = 1.0, 0.0
        mean[name][rows:, 3], std[name][rows:, 3] = 0.4, 0.5
    mean["object_keypoints"][2], std["object_keypoints"][2] = 0.0, 0.0  # no task has this row
    return Scaling(
        mean={name: tuple(each.ravel().tolist()) for name, each in mean.items()},
        std={name: tuple(each.ravel().tolist()) for name, each in std.items()},
    )


def blueprint_of(body: str, gate: GateConfig | None = None, hidden: bool = True) -> Blueprint:
    config = PolicyConfig(body=BODIES[body], task_hidden=hidden, gate=gate)
    return Blueprint.of(config, LAYOUT, ACTION, scaling_of_data())


def seen_by_all(seed: int, steps: int = 3) -> list[dict[str, np.ndarray]]:
    generator = np.random.default_rng(seed)
    return [
        {
            name: generator.normal(size=array.shape).astype(np.float32)
            for name, array in LAYOUT.items()
        }
        for _ in range(steps)
    ]


def acted(policy: Checkpoint, steps: list[dict[str, np.ndarray]]) -> np.ndarray:
    acting = NetworkPolicy(policy)
    return np.stack([acting.act(each) for each in steps])


def checkpoint(blueprint: Blueprint, seed: int) -> Checkpoint:
    network = blueprint.create(seed)
    with torch.no_grad():
        for each in network.parameters():
            each.mul_(0.3)  # so that actions are not clipped
    return Checkpoint(blueprint, network.state_dict())


GATED, MEAN = GateConfig(members=2), GateConfig(members=2, sharpness=0.0)


@pytest.mark.parametrize(
    ("body", "gate"), [*((body, None) for body in BODIES), ("mlp", GATED), ("gru", MEAN)]
)
@given(
    seed=st.integers(0, 99),
    task=st.permutations(range(3)),
    numbers=st.sampled_from([0.0, 1.0, -7.5, math.nan, math.inf]),
)
def test_what_only_says_the_task_changes_no_action(body, gate, seed, task, numbers):
    policy, steps = checkpoint(blueprint_of(body, gate), seed), seen_by_all(seed)
    others = [{name: array.copy() for name, array in each.items()} for each in steps]
    for each in others:
        each["task"] = each["task"][list(task)]
        for name, rows in ROWS.items():
            each[name][:, 3] = numbers  # masks
            each[name][rows:] = numbers  # rows that some task lacks
    expected = acted(policy, steps)
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(acted(policy, others), expected)


@pytest.mark.parametrize("body", BODIES)
def test_what_all_tasks_have_is_read_and_a_known_task_is_too(body):
    hidden, known = (checkpoint(blueprint_of(body, hidden=hidden), 1) for hidden in (True, False))
    steps = seen_by_all(1)
    for policy, name, index, changes in (
        (hidden, "joint_position", (2,), True),
        (hidden, "tool_keypoints", (1, 2), True),
        (hidden, "object_keypoints", (0, 0), True),
        (known, "task", (0,), True),
        (known, "tool_keypoints", (2, 1), True),
        (known, "object_keypoints", (1, 3), True),
    ):
        others = [{key: array.copy() for key, array in each.items()} for each in steps]
        others[0][name][index] += 1.0
        assert np.array_equal(acted(policy, others), acted(policy, steps)) is not changes, name


def test_it_is_stored_with_the_policy_and_an_environment_without_a_one_hot_will_do(tmp_path):
    policy, steps = checkpoint(blueprint_of("mlp"), 0), seen_by_all(0)
    assert "task" not in policy.blueprint.observation
    save_checkpoint(tmp_path / "hidden.safetensors", policy)
    stored = load_checkpoint(tmp_path / "hidden.safetensors")
    assert stored.blueprint == policy.blueprint and stored.blueprint.config.task_hidden
    without = [{name: each[name] for name in each if name != "task"} for each in steps]
    np.testing.assert_array_equal(acted(stored, without), acted(policy, steps))
    assert policy.blueprint.differences(blueprint_of("mlp", hidden=False))


def test_a_policy_with_a_known_task_is_written_as_before_there_were_others():
    plain, hidden = (blueprint_of("mlp", hidden=each) for each in (False, True))
    assert "task_hidden" not in plain.to_json() and "task_hidden" in hidden.to_json()
    assert plain.digest() != hidden.digest()
    for each in (plain, hidden):
        assert Blueprint.model_validate_json(each.to_json()) == each


def test_of_no_data_all_keypoints_are_hidden():
    """Without a scaling, nobody knows what some task lacks."""
    blueprint = Blueprint.of(PolicyConfig(body=BODIES["mlp"], task_hidden=True), LAYOUT, ACTION)
    steps = seen_by_all(3)
    others = [{**each, **{name: 1 + each[name] for name in ROWS}} for each in steps]
    policy = checkpoint(blueprint, 0)
    np.testing.assert_array_equal(acted(policy, others), acted(policy, steps))


@pytest.mark.parametrize("body", CONDITIONED)
def test_a_task_is_not_hidden_from_a_body_that_is_told_it(body):
    with pytest.raises(ConfigError, match="leave out `task_hidden`"):
        parse(PolicyConfig, {"body": CONDITIONED[body].model_dump(), "task_hidden": True}, "It")


def test_a_hidden_entry_is_not_named():
    config = PolicyConfig(body=BODIES["mlp"], reads=("task", "joint_position"), task_hidden=True)
    with pytest.raises(LayoutError, match="hides 'task', which `reads` names"):
        Blueprint.of(config, LAYOUT, ACTION, scaling_of_data())
