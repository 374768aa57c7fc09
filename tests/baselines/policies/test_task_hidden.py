"""A policy whose task is hidden acts alike whatever says only which task it is."""

import math
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.policy_cases import ACTION, BODIES, CONDITIONED, PADDED

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from fleet_tools.baselines.policies.config import GateConfig, PolicyConfig
from fleet_tools.baselines.policies.layout import LayoutError, Scaling
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.config.values import parse
from fleet_tools.dataset.header import ArraySpec
from fleet_tools.errors import ConfigError

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


def observations(seed: int, steps: int = 3) -> list[dict[str, np.ndarray]]:
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
    policy, steps = checkpoint(blueprint_of(body, gate), seed), observations(seed)
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
    steps = observations(1)
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
    policy, steps = checkpoint(blueprint_of("mlp"), 0), observations(0)
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
    steps = observations(3)
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
