"""Policies that act: episodes of observations, and what is executed of chunks."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from support.policy_cases import BLUEPRINTS, BODIES, made, observations, step
from support.rendering import needs_gl

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.layout import LayoutError
from fleet_tools.baselines.policies.part_configs import (
    EnsembleConfig,
    ExecutionConfig,
    HorizonConfig,
    LinearHeadConfig,
)
from fleet_tools.baselines.policies.policy import (
    Chunks,
    NetworkPolicy,
    ensemble,
    ensemble_weights,
    execute,
    load_checkpoint_policy,
)
from fleet_tools.dataset.header import describe_action, describe_observation
from fleet_tools.rollouts.rollout import rollout

EVERY = pytest.mark.parametrize("name", BLUEPRINTS)


def checkpoint(name: str = "mlp on state") -> Checkpoint:
    return Checkpoint(BLUEPRINTS[name], made(name).state_dict())


@EVERY
def test_a_stored_policy_acts_as_its_network_does(name, tmp_path):
    save_checkpoint(tmp_path / "policy.safetensors", checkpoint(name))
    policy = load_checkpoint_policy(tmp_path / "policy.safetensors")
    trajectories = observations(BLUEPRINTS[name], 2, 5)
    config = BLUEPRINTS[name].config
    noise: list[torch.Tensor] = []
    if not isinstance(config.head, LinearHeadConfig):  # the same in each episode
        drawn = np.random.default_rng(0).standard_normal((5, 6 * config.chunk), np.float32)
        noise = [torch.tensor(drawn).expand(2, -1, -1)]
    with torch.no_grad():
        chunks = made(name)(trajectories, None, *noise)[0].unflatten(-1, (config.chunk, 6))
    chunks = chunks.numpy()
    for batch in range(2):
        policy.reset()  # its memory of the first trajectory would affect the second
        for t in range(5):
            action = policy.act(step(trajectories, batch, t))
            assert action.shape == (6,) and action.dtype == np.float32
            made_at = range(max(0, t - config.chunk + 1), t + 1)
            predictions = [chunks[batch, then, t - then] for then in made_at]
            weights = np.exp(-0.01 * np.arange(len(predictions)))
            expected = np.average(predictions, 0, weights).clip(-1, 1)
            np.testing.assert_allclose(action, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("body", BODIES)
def test_without_reset_an_episode_depends_on_the_last_one_if_there_is_memory(body):
    policy = NetworkPolicy(checkpoint(f"{body} on state"))
    trajectories = observations(policy.blueprint, 1, 2)
    first = policy.act(step(trajectories, 0, 0))
    policy.act(step(trajectories, 0, 1))
    forgets = body in ("mlp", "linear")
    assert np.array_equal(policy.act(step(trajectories, 0, 0)), first) == forgets
    policy.reset()
    np.testing.assert_array_equal(policy.act(step(trajectories, 0, 0)), first)


def test_actions_stay_within_their_bounds():
    name = "mlp on state"
    loud = {key: 30 * tensor for key, tensor in made(name).state_dict().items()}
    policy = NetworkPolicy(Checkpoint(BLUEPRINTS[name], loud))
    action = policy.act(step(observations(BLUEPRINTS[name], 1, 1), 0, 0))
    assert set(action.tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda o: {}, "'joint_position' is missing; 'object_keypoints' is missing"),
        (lambda o: list(o), "given: list"),
        (lambda o: o | {"joint_position": np.zeros(6, np.float32)}, r"\(6,\), not float32 \(7,\)"),
        (lambda o: o | {"joint_position": np.zeros(7)}, r"is float64 \(7,\), not float32"),
        (lambda o: o | {"object_keypoints": [1.0] * 6}, "'object_keypoints' is a list"),
    ],
)
def test_an_observation_of_another_layout_is_refused_and_changes_nothing(change, message):
    policy = NetworkPolicy(checkpoint("gru on state"))
    trajectories = observations(policy.blueprint, 1, 2)
    expected = [policy.act(step(trajectories, 0, t)) for t in range(2)]
    policy.reset()
    actions = [policy.act(step(trajectories, 0, 0))]
    with pytest.raises(LayoutError, match=message):
        policy.act(change(step(trajectories, 0, 1)))
    actions.append(policy.act(step(trajectories, 0, 1) | {"more": np.zeros(3)}))
    np.testing.assert_array_equal(actions, expected)


def test_a_policy_acts_in_its_own_environment_and_in_no_other(make, hammer, tmp_path):
    path = tmp_path / "policy.safetensors"
    observation, action = describe_observation(hammer), describe_action(hammer)
    blueprint = Blueprint.of(PolicyConfig(body=BODIES["gru"]), observation, action)
    save_checkpoint(path, Checkpoint(blueprint, blueprint.create().state_dict()))
    policy = load_checkpoint_policy(path, hammer)
    first, again = (rollout(hammer, policy, seed=3) for _ in range(2))
    assert first.outcome == "time_limit" and len(first) == len(again) == 60
    np.testing.assert_array_equal(first.actions, again.actions)
    assert np.ptp(first.actions, axis=0).all()
    spatula = make("FleetTools/Spatula-v0")
    with pytest.raises(LayoutError, match="the entries of 'tool_keypoints' is"):
        load_checkpoint_policy(path, spatula)
    assert rollout(spatula, policy, seed=3).outcome == "policy_error"
    scaled = action.model_copy(update={"scale": (0.01,) * 6})
    with pytest.raises(LayoutError, match="the scale is"):
        Blueprint.of(blueprint.config, observation, scaled).require_environment(hammer)


@needs_gl
@pytest.mark.parametrize(
    ("name", "env_kwargs"),
    [
        ("clouds", {"obs_mode": "point_cloud"}),
        ("images", {"obs_mode": "rgbd", "channels": ("rgb",), "camera_size": (64, 48)}),
    ],
)
def test_policies_act_on_clouds_and_on_images(make, name, env_kwargs):
    env = make(tool="claw", object="round_nail", **env_kwargs)
    config = BLUEPRINTS[f"gru on {name}"].config
    blueprint = Blueprint.of(config, describe_observation(env), describe_action(env))
    policy = NetworkPolicy(Checkpoint(blueprint, blueprint.create().state_dict()))
    policy.reset()
    action = policy.act(env.reset(seed=0)[0])
    assert env.action_space.contains(action)


DECAYS = st.floats(0, 5)


def episode(config: ExecutionConfig, chunks: np.ndarray) -> np.ndarray:
    """Returns the actions of an episode in which chunks (T, n, 6) are predicted, (T, 6)."""
    actions, memory = [], ()
    for chunk in chunks:
        action, memory = execute(config, memory, chunk)
        actions.append(action)
    return np.array(actions)


def predicted(steps: int, size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(steps, size, 6)).astype(np.float32)


@given(count=st.integers(1, 50), decay=DECAYS)
def test_weights_are_a_mean_in_which_the_oldest_counts_most(count, decay):
    weights = ensemble_weights(count, decay)
    assert weights.sum() == pytest.approx(1)
    assert (weights > 0).all() and (np.diff(weights) <= 0).all()


@given(
    action=npst.arrays(np.float32, 6, elements=st.floats(-1, 1, width=32)),
    size=st.integers(1, 9),
    decay=DECAYS,
)
def test_the_mean_of_equal_predictions_is_that_prediction(action, size, decay):
    chunks = np.tile(action, (12, size, 1))
    actions = episode(EnsembleConfig(decay=decay), chunks)
    np.testing.assert_allclose(actions, np.tile(action, (12, 1)), rtol=1e-6, atol=1e-7)


@given(size=st.integers(1, 6), decay=DECAYS, seed=st.integers(0, 99))
def test_predictions_for_a_step_are_those_of_the_last_chunks(size, decay, seed):
    chunks = predicted(10, size, seed)
    for t, action in enumerate(episode(EnsembleConfig(decay=decay), chunks)):
        sums, total = np.zeros(6), 0.0
        for i, then in enumerate(range(max(0, t - size + 1), t + 1)):
            weight = np.exp(-decay * i)
            sums, total = sums + weight * chunks[then, t - then], total + weight
        np.testing.assert_allclose(action, sums / total, rtol=1e-4, atol=1e-6)


@given(seed=st.integers(0, 99), decay=DECAYS)
def test_a_chunk_of_one_action_is_executed_bit_for_bit(seed, decay):
    chunks = predicted(7, 1, seed)
    for config in (EnsembleConfig(decay=decay), HorizonConfig(steps=1)):
        actions = episode(config, chunks)
        assert actions.dtype == np.float32
        np.testing.assert_array_equal(actions, chunks[:, 0])


@given(size=st.integers(1, 6), steps=st.integers(1, 6), seed=st.integers(0, 99))
def test_with_a_horizon_the_first_actions_of_every_so_many_chunks_are_executed(size, steps, seed):
    steps = min(steps, size)
    chunks = predicted(13, size, seed)
    expected = [chunks[t - t % steps, t % steps] for t in range(13)]
    np.testing.assert_array_equal(episode(HorizonConfig(steps=steps), chunks), expected)


def test_no_chunk_is_changed():
    chunks: Chunks = tuple(predicted(3, 3))
    before = [chunk.copy() for chunk in chunks]
    ensemble(chunks, 0.5)
    np.testing.assert_array_equal(before, chunks)
