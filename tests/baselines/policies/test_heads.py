"""Heads that denoise."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.policy_cases import BLUEPRINTS, DENOISING, made, observations, step
from support.processes import run_python

from fleet_merging.methods.registry import merge
from fleet_merging.problem import MergeProblem
from fleet_merging.symmetry.check import check
from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
from fleet_tools.baselines.policies.config import PolicyConfig, read_policy_config
from fleet_tools.baselines.policies.heads import Diffusion, Flow, regression
from fleet_tools.baselines.policies.part_configs import (
    DenoisingConfig,
    DiffusionHeadConfig,
    FlowHeadConfig,
    HeadConfig,
    HorizonConfig,
    LinearHeadConfig,
    RecurrentConfig,
)
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.errors import ConfigError

NOISY = ["mlp with flow", "gru with diffusion"]
each_noisy = pytest.mark.parametrize("name", NOISY)


def random_tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape)).float()


@given(steps=st.integers(1, 30), unit=st.floats(0.05, 2), seed=st.integers(0, 99))
def test_where_all_actions_are_one_exact_answers_lead_to_it(steps, unit, seed):
    """So the signs, schedules and last steps of both samplers are right."""
    a = random_tensor(3, 6, seed=seed).clamp(-1, 1)
    begin = random_tensor(3, 6, seed=seed + 1)
    reached = Flow(unit, steps).sample(lambda x, t: (a / unit - x) / (1 - t), begin)
    torch.testing.assert_close(reached, a, rtol=1e-3, atol=1e-4)

    def noise(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return (x - kept(t).sqrt() * a / unit) / (1 - kept(t)).sqrt()

    reached = Diffusion(unit, 50, steps).sample(noise, begin)
    torch.testing.assert_close(reached, a, rtol=1e-3, atol=2e-3)


def kept(time: torch.Tensor) -> torch.Tensor:
    """Returns the cosine schedule of Nichol and Dhariwal 2021, eq. 17, computed in float64."""
    at_time, at_zero = (
        torch.cos((each.double() + 0.008) / 1.008 * torch.pi / 2) ** 2 for each in (time, 0 * time)
    )
    return (at_time / at_zero).clamp(1e-4, 1).float()


@given(seed=st.integers(0, 99), unit=st.floats(0.05, 2))
def test_what_is_asked_lies_between_noise_and_actions(seed, unit):
    actions = random_tensor(4, 5, 6, seed=seed)
    (noisy, time), velocity, _ = Flow(unit, 4).regression(actions, np.random.default_rng(seed))
    ends = unit * (noisy + (1 - time) * velocity)
    torch.testing.assert_close(ends, actions, rtol=1e-4, atol=1e-4)
    (noisy, time), z, _ = Diffusion(unit, 9, 3).regression(actions, np.random.default_rng(seed))
    assert set((9 * time).round().int().unique().tolist()) <= set(range(1, 10))
    b = kept(time)
    expected = b.sqrt() * actions / unit + (1 - b).sqrt() * z
    torch.testing.assert_close(noisy, expected, rtol=1e-3, atol=1e-3)


def test_equal_generators_ask_the_same():
    actions = random_tensor(4, 6)
    for config in DENOISING.values():
        one, other = (regression(config, actions, np.random.default_rng(3)) for _ in range(2))
        different = regression(config, actions, np.random.default_rng(4))
        assert torch.equal(one.target, other.target)
        assert all(map(torch.equal, one.inputs, other.inputs))
        assert not torch.equal(one.target, different.target)
    assert regression(LinearHeadConfig(), actions, np.random.default_rng(3)).inputs == ()


@pytest.mark.parametrize(
    "config",
    [
        LinearHeadConfig(),
        *(each(width=64, unit=0.5) for each in (FlowHeadConfig, DiffusionHeadConfig)),
    ],
)
def test_of_two_ways_to_act_noisy_heads_learn_both_and_a_linear_one_their_mean(config: HeadConfig):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = config.create(4, 2)
    generator, ways = np.random.default_rng(0), torch.tensor([[0.5, -0.3], [-0.5, 0.3]])
    optimizer = torch.optim.Adam(head.parameters(), 1e-2)
    for step_number in range(600):
        optimizer.param_groups[0]["lr"] = 1e-2 * (1 - step_number / 600)
        asked = regression(config, ways[generator.integers(2, size=128)], generator)
        loss = (head(torch.ones(128, 4), *asked.inputs) - asked.target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    noise = [] if isinstance(config, LinearHeadConfig) else [random_tensor(400, 2)]
    with torch.no_grad():
        sampled = head(torch.ones(400, 4), *noise)
    distances = torch.cdist(sampled, ways)
    near, first = distances.min(1).values < 0.2, distances.argmin(1) == 0
    if isinstance(config, LinearHeadConfig):
        assert not near.any() and sampled.abs().max() < 0.15
    else:
        assert near.float().mean() > 0.7
        assert 0.2 < first[near].float().mean() < 0.8


@each_noisy
def test_the_table_holds_for_actions_from_the_same_noise_and_for_answers(name):
    network, example = made(name), observations(BLUEPRINTS[name], 2, 3)
    noisy, time = random_tensor(2, 3, 12), random_tensor(2, 3, 1).abs().clamp(0, 1)
    for inputs in ((example, None, noisy), (example, None, noisy, time)):
        check(network.symmetry(), network, inputs, output=lambda outputs: outputs[0])
    table = network.symmetry().table()
    assert table["head.layers.0.weight"] == "head.h0 (h1 | _noisy:12 | _time:16)"
    assert table["head.output.weight"] == "_action head.h1"


@each_noisy
@pytest.mark.parametrize("method", ["naive_average", "git_rebasin"])
def test_policies_with_noisy_heads_are_merged_into_one_that_acts(name, method):
    states = [made(name, seed).state_dict() for seed in (0, 1)]
    merged = merge(method, MergeProblem(made(name).symmetry(), states)).state
    policy = NetworkPolicy(Checkpoint(BLUEPRINTS[name], merged))
    action = policy.act(step(observations(BLUEPRINTS[name], 1, 1), 0, 0))
    assert np.isfinite(action).all()
    if method == "naive_average":
        key = "head.output.weight"
        torch.testing.assert_close(merged[key], (states[0][key] + states[1][key]) / 2)


def test_policies_act_the_same_in_each_episode_and_in_a_fresh_process(tmp_path):
    here = []
    for name in NOISY:
        (folder := tmp_path / name).mkdir()
        checkpoint = Checkpoint(BLUEPRINTS[name], made(name).state_dict())
        save_checkpoint(folder / "policy.safetensors", checkpoint)
        trajectories = observations(BLUEPRINTS[name], 1, 4)
        rows = {key: each[0].tolist() for key, each in trajectories.items()}
        (folder / "rows.json").write_text(json.dumps(rows))
        policy = NetworkPolicy(checkpoint)
        before = torch.random.get_rng_state()
        episodes = []
        for _ in range(2):
            policy.reset()
            episodes.append([policy.act(step(trajectories, 0, t)).tolist() for t in range(4)])
        assert torch.equal(before, torch.random.get_rng_state())
        assert episodes[0] == episodes[1]
        policy.reset(seed=1)
        assert policy.act(step(trajectories, 0, 0)).tolist() != episodes[0][0]
        here.append(episodes[0])
    code = """
import json, pathlib, sys
import numpy as np, torch
torch.set_num_threads(1)
from fleet_tools.baselines.policies.policy import load_checkpoint_policy
found = []
for folder in map(pathlib.Path, sys.argv[1:]):
    rows = json.loads((folder / "rows.json").read_text())
    policy = load_checkpoint_policy(folder / "policy.safetensors")
    observed = [{k: np.array(v[t], np.float32) for k, v in rows.items()} for t in range(4)]
    found.append([policy.act(each).tolist() for each in observed])
print(json.dumps(found))
"""
    assert here == run_python(code, *(str(tmp_path / name) for name in NOISY))


def test_a_policy_of_before_acts_as_its_formula_says():
    """Names and shapes of weights, and what is done with them, as version 0.1 did."""
    state = made("mlp on state").state_dict()
    assert list(state) == [
        *(f"body.layers.{i}.{part}" for i in (0, 1) for part in ("weight", "bias")),
        *("head.weight", "head.bias"),
    ]
    observation = step(observations(BLUEPRINTS["mlp on state"], 1, 1), 0, 0)
    x = np.concatenate([observation[name].ravel() for name in sorted(observation)])
    w = {name: tensor.numpy() for name, tensor in state.items()}
    for i in (0, 1):
        x = np.maximum(w[f"body.layers.{i}.weight"] @ x + w[f"body.layers.{i}.bias"], 0)
    policy = NetworkPolicy(Checkpoint(BLUEPRINTS["mlp on state"], state))
    expected = np.clip(w["head.weight"] @ x + w["head.bias"], -1, 1)
    np.testing.assert_allclose(policy.act(observation), expected, rtol=1e-5, atol=1e-6)


def mlp_with(*given: tuple[str, object]) -> PolicyConfig:
    return read_policy_config("mlp", given)


def test_settings_of_the_command_line_choose_and_change_heads():
    config = mlp_with(("head.type", "flow"), ("head.steps", 5), ("chunk", 6))
    assert config.head == FlowHeadConfig(steps=5) and config.chunk == 6
    config = mlp_with(("head.type", "flow"), ("head.width", 64), ("head.type", "diffusion"))
    assert config.head == DiffusionHeadConfig(width=64)  # what both have is kept
    config = mlp_with(("head.type", "diffusion"), ("head.levels", 7), ("head.type", "linear"))
    assert config == mlp_with()
    config = mlp_with(("chunk", 4), ("execution.type", "horizon"), ("execution.steps", 3))
    assert config.execution == HorizonConfig(steps=3)
    config = read_policy_config("transformer", [("body.width", 64), ("body.type", "gru")])
    assert config.body == RecurrentConfig(type="gru", width=64)
    config = mlp_with(("body.task_conditioning", "film"), ("body.type", "elman"))
    assert config.body == RecurrentConfig(type="elman")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([("head.type", "gaussian")], "head"),
        ([("head.steps", 3)], "head.linear.steps: Unknown key: 'steps'"),
        ([("head.type", "flow"), ("head.steps", 0)], "head.flow.steps"),
        ([("head.type", "diffusion"), ("head.levels", 5)], "10 steps exceed the 5"),
        ([("chunk", 0)], "chunk"),
        ([("execution.type", "horizon"), ("execution.steps", 2)], "exceed the 1 actions"),
        ([("body.type", "gru"), ("body.task_conditioning", "film")], "body.gru.task_conditioning"),
        ([("body.task_conditioning", "token")], "body.mlp.task_conditioning"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        mlp_with(*given)


@pytest.mark.parametrize("config", DENOISING.values())
def test_sampling_begins_at_zeros_unless_noise_is_given(config: DenoisingConfig):
    head, units = config.create(4, 6), random_tensor(2, 4)
    assert torch.equal(head(units), head(units, torch.zeros(2, 6)))
    assert not torch.equal(head(units), head(units, torch.ones(2, 6)))
