"""Bodies that are told the task by FiLM or by a token."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from support.policy_cases import ACTION, BLUEPRINTS, CONDITIONED, PADDED, STATE, made, observations

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.layout import LayoutError
from fleet_tools.baselines.policies.part_configs import MLPConfig

FILM, TOKEN = (BLUEPRINTS[f"{name} of the task"] for name in CONDITIONED)


def actions(
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
    assert torch.equal(actions(FILM, trajectories, state), actions(plain, trajectories))
    assert not state["body.film.0.weight"].any()
    assert set(state) - set(plain.create().state_dict()) == {
        f"body.film.{i}.weight" for i in (0, 1)
    }
    state["body.film.1.weight"][0, 0] = 1.0
    assert not torch.equal(actions(FILM, trajectories, state), actions(plain, trajectories))


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
    torch.testing.assert_close(actions(FILM, trajectories, state)[0, 0], expected)


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


def test_the_token_is_remembered_beside_the_last_steps():
    with torch.no_grad():
        for steps, remembered in ((1, 2), (2, 3), (9, 3)):  # one token, and context - 1 steps
            _, hidden = made("token of the task")(observations(TOKEN, 2, steps))
            assert {state.shape for state in hidden} == {(2, 2, 2, remembered, 8)}


@pytest.mark.parametrize("body", CONDITIONED.values())
def test_without_padded_keypoints_nothing_says_which_task_it_is(body):
    with pytest.raises(LayoutError, match="obs_mode=multitask_state"):
        Blueprint.of(PolicyConfig(body=body), STATE, ACTION)
    with pytest.raises(LayoutError, match="None of joint_position says which task"):
        Blueprint.of(PolicyConfig(body=body, reads=("joint_position",)), PADDED, ACTION)
