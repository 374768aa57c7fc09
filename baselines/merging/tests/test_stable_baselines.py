"""Policies of Stable-Baselines3, fresh from `learn`, as strangers bring them."""

import numpy as np
import pytest
import torch

stable_baselines3 = pytest.importorskip("stable_baselines3")

import gymnasium
from gymnasium import spaces

from fleet_merging import derive, merge
from fleet_merging.modules import copied, load_tensors, tensors_in, tensors_of

NUMBERS = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Box(-1, 1, (2,), np.float32)
PICTURE = spaces.Box(0, 255, (1, 36, 36), np.uint8)
BOTH = spaces.Dict({"numbers": NUMBERS, "picture": PICTURE})


class Noise(gymnasium.Env):
    """Random observations and rewards."""

    def __init__(self, observations, actions):
        self.observation_space, self.action_space = observations, actions

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), float(self.np_random.normal()), False, False, {}


OFF = {"learning_starts": 4, "batch_size": 4, "buffer_size": 100}
ON = {"n_steps": 8}
PPO = {"n_steps": 16, "batch_size": 8, "n_epochs": 1}
CASES = {
    "A2C": ("A2C", "MlpPolicy", NUMBERS, ACTIONS, ON, 4),
    "A2C, state-dependent noise": ("A2C", "MlpPolicy", NUMBERS, ACTIONS, ON | {"use_sde": True}, 4),
    "PPO, choices": ("PPO", "MlpPolicy", NUMBERS, spaces.Discrete(4), PPO, 4),
    "PPO, several choices": ("PPO", "MlpPolicy", NUMBERS, spaces.MultiDiscrete([3, 4]), PPO, 4),
    "PPO, pictures": ("PPO", "CnnPolicy", PICTURE, spaces.Discrete(3), PPO, 8),
    "PPO, both": ("PPO", "MultiInputPolicy", BOTH, ACTIONS, PPO, 8),
    "SAC": ("SAC", "MlpPolicy", NUMBERS, ACTIONS, OFF, 2),
    "TD3": ("TD3", "MlpPolicy", NUMBERS, ACTIONS, OFF, 2),
    "DQN": ("DQN", "MlpPolicy", NUMBERS, spaces.Discrete(4), OFF, 2),
}
SLOW = {"PPO, several choices", "PPO, pictures", "PPO, both", "TD3", "A2C, state-dependent noise"}


def sampled(space):
    if isinstance(space, spaces.Dict):
        return {name: sampled(each) for name, each in space.spaces.items()}
    space.seed(0)
    return torch.as_tensor(np.stack([space.sample() for _ in range(6)]))


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in SLOW)) for kind in CASES]
)
@pytest.mark.filterwarnings("ignore")
def test_policies_fresh_from_learning_are_derived_and_merged(kind):
    algorithm, policy, observations, actions, options, free = CASES[kind]
    torch.manual_seed(0)
    sizes = {"net_arch": [16, 16]}
    learner = getattr(stable_baselines3, algorithm)(
        policy, Noise(observations, actions), policy_kwargs=sizes, seed=0, **options
    )
    model = learner.learn(24).policy
    model = model.q_net if kind == "DQN" else model  # an argmax shows little of its units
    example = (sampled(observations), True) if kind != "DQN" else (sampled(observations),)

    symmetry = derive(model, example, draws=1)
    state = tensors_of(model)
    group = symmetry.group(state)
    assert len(group.sizes) == free
    twin = copied(model)
    load_tensors(twin, symmetry.apply(group.random(np.random.default_rng(0)), state))
    merged = merge("git_rebasin", [model, twin], example=example, symmetry=symmetry).model

    model.eval()
    with torch.no_grad():
        expected, *others = ([*tensors_in(each(*example))] for each in (model, twin, merged))
    for each in others:
        torch.testing.assert_close(each, expected, atol=1e-5, rtol=1e-5)
