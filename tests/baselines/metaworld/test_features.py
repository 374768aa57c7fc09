"""Meta-World in features of images: what is observed, stored and trained with."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from support.rendering import needs_gl

pytest.importorskip("metaworld")
torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from support.encoder_weights import some_weights, write_weights

from fleet_tools import replay
from fleet_tools.baselines import train
from fleet_tools.baselines.metaworld import __main__ as program
from fleet_tools.baselines.metaworld.encoder import (
    RANDOM_ENCODER,
    open_encoder,
)
from fleet_tools.baselines.metaworld.env import MetaWorldEnv
from fleet_tools.baselines.metaworld.expert import EXPERT, scripted_expert
from fleet_tools.baselines.metaworld.observations import (
    FEATURE_IMAGE_SIZE,
    FeatureObserver,
    MuJoCoRenderer,
)
from fleet_tools.baselines.policies.part_configs import ResNet18Config
from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.samples import Samples
from fleet_tools.envs.recorded_env import interface_of
from fleet_tools.errors import ConfigError, DatasetError, FleetToolsError
from fleet_tools.policies.policy import StoredActions
from fleet_tools.policies.sources import find_policy
from fleet_tools.rollouts.rollout import rollout

TASK = "coffee-button-v3"
"""Its episodes are short."""
pytestmark = pytest.mark.filterwarnings("error::UserWarning")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of weights."""
    return write_weights(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two episodes in features of the random encoder."""
    folder = tmp_path_factory.mktemp("features")
    options = ["--tasks", TASK, "--obs-mode", "features", "--episodes", "2", "--workers", "0"]
    assert program.main(["collect", *options, "--output", str(folder), "--quiet"]) == 0
    return folder / TASK


@needs_gl
def test_the_observation_holds_neither_objects_nor_the_goal():
    env = MetaWorldEnv(TASK, obs_mode="features")
    assert (
        set(env.features)
        == set(interface_of(env).observation_space)
        == {"features", "hand", "task"}
    )
    assert env.features["hand"].entries == ("hand_x", "hand_y", "hand_z", "gripper_opening")
    assert env.features["features"].unit.endswith(f"by {RANDOM_ENCODER}")
    with pytest.raises(ConfigError, match="the state"):
        scripted_expert(interface_of(env))


# The environment.


@needs_gl
def test_features_are_those_of_an_image_of_the_state(weights):
    """By another route: an environment of states, a renderer, and the network by hand."""
    env = MetaWorldEnv(TASK, obs_mode="features", resnet_weights=weights)
    plain = MetaWorldEnv(TASK)
    network = ResNet18Config(frozen=True).create()
    network.load_state_dict(
        {key: value for key, value in some_weights(1).items() if not key.startswith("fc.")}
    )
    renderer = MuJoCoRenderer(plain._inner.model, FEATURE_IMAGE_SIZE, simplified=True)
    pairs = [(env.reset(seed=4)[0], plain.reset(seed=4)[0])]
    images = [renderer.render(plain._inner.data)]
    for _ in range(3):
        action = np.array([0.5, 1, -1, 1], np.float32)
        pairs.append((env.step(action)[0], plain.step(action)[0]))
        images.append(renderer.render(plain._inner.data))
        assert env.state_digest() == plain.state_digest()
    with torch.no_grad():
        expected = network(torch.from_numpy(np.stack(images))).numpy()
    for (observed, state), row in zip(pairs, expected, strict=True):
        np.testing.assert_allclose(observed["features"], row, rtol=1e-3, atol=1e-4)
        np.testing.assert_array_equal(observed["hand"], state["state"][:4])
        np.testing.assert_array_equal(observed["task"], state["task"])
        np.testing.assert_array_equal(env.observation_space.contains(observed), True)
    assert np.abs(expected[0] - expected[-1]).max() > 1e-3
    renderer.close()
    env.close()
    assert env.reset(seed=4)[0]["features"].tobytes() == pairs[0][0]["features"].tobytes()
    env.close()


@needs_gl
def test_the_expert_acts_as_in_states_and_an_episode_replays():
    env, plain = MetaWorldEnv(TASK, obs_mode="features"), MetaWorldEnv(TASK)
    episode = rollout(plain, scripted_expert(plain), seed=7)
    few = rollout(env, Limited(scripted_expert(env), 12), seed=7)
    np.testing.assert_array_equal(few.digests, episode.digests[: len(few) + 1])
    np.testing.assert_array_equal(few.actions, episode.actions[: len(few)])
    again = rollout(env, StoredActions(few.actions), scene=few.scene)
    assert again.observations["features"].tobytes() == few.observations["features"].tobytes()
    env.close()


class Limited:
    """A policy that acts a number of times."""

    def __init__(self, policy, steps: int) -> None:
        self._policy, self._left = policy, steps

    def reset(self) -> None:
        """Begins an episode."""
        self._policy.reset()

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Acts, or ends the episode."""
        self._left -= 1
        if self._left < 0:
            raise ConfigError("enough")
        return self._policy.act(observation)


@needs_gl
def test_renderers_do_not_free_each_other():
    """OpenGL deletes objects of whatever context is current."""
    envs = [MetaWorldEnv(task, obs_mode="features") for task in (TASK, "reach-v3")]
    first, second = (env.reset(seed=1)[0]["features"] for env in envs)
    assert first.tobytes() != second.tobytes()
    envs[0].close()
    envs[0].close()
    assert envs[1].reset(seed=1)[0]["features"].tobytes() == second.tobytes()
    assert envs[0].reset(seed=1)[0]["features"].tobytes() == first.tobytes()
    renderer = cast(FeatureObserver, envs[1]._observer)._renderer
    envs[1].close()
    assert renderer is not None and not renderer._free.alive
    envs[0].close()


_PRINT_BITS = f"""
import hashlib
from fleet_tools.baselines.metaworld.env import MetaWorldEnv
env = MetaWorldEnv({TASK!r}, obs_mode="features")
observation, _ = env.reset(seed=11)
print(hashlib.sha256(observation["features"].tobytes()).hexdigest())
env.close()
"""


@pytest.mark.slow
@needs_gl
def test_another_process_observes_the_same_bits():
    """Whatever the number of threads that it is given, and after another history."""
    other = subprocess.run(
        [sys.executable, "-c", _PRINT_BITS],
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    env = MetaWorldEnv(TASK, obs_mode="features")
    env.reset(seed=2)
    features = env.reset(seed=11)[0]["features"]
    assert other.stdout.strip() == hashlib.sha256(features.tobytes()).hexdigest()
    env.close()


# Datasets, training and evaluation.


@needs_gl
def test_a_dataset_names_its_encoder_and_replays(dataset, capsys):
    stored = Dataset(dataset)
    assert stored.header.env_spec.kwargs == {
        "task": TASK,
        "tasks": TASK,
        "obs_mode": "features",
        "encoder": RANDOM_ENCODER,
    }
    assert stored.header.observation["features"].shape == (512,)
    assert replay.main([str(dataset), "--episodes", "1", "--workers", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["identical"] == 1


@needs_gl
def test_datasets_and_policies_of_another_encoder_are_refused(dataset, weights, tmp_path, capsys):
    command = ["collect", "--tasks", TASK, "--obs-mode", "features", "--episodes", "1"]
    collect = [*command, "--workers", "0", "--resnet-weights", str(weights), "--quiet"]
    assert program.main([*collect, "--output", str(tmp_path)]) == 0
    name = open_encoder(weights=weights).name
    header = Dataset(tmp_path / TASK).header
    assert header.env_spec.kwargs["encoder"] == name
    assert header.env_spec.kwargs["resnet_weights"] == str(weights)
    with pytest.raises(DatasetError, match=f"features: unit .*{RANDOM_ENCODER}.*{name}"):
        Samples([dataset, tmp_path / TASK])
    capsys.readouterr()
    assert program.main([*collect, "--output", str(dataset.parent), "--episodes", "3"]) == 2
    assert RANDOM_ENCODER in capsys.readouterr().err  # a dataset is not continued by another one
    moved = {**header.env_spec.kwargs, "resnet_weights": str(tmp_path / "moved")}
    spec = header.env_spec.model_copy(update={"kwargs": moved})
    with pytest.raises(ConfigError, match=f"{name}.*moved.*put its file, or a link to it, there"):
        header.model_copy(update={"env_spec": spec}).make_env()


@needs_gl
def test_a_policy_is_trained_without_images_and_acts(dataset, weights, tmp_path, capsys):
    output = tmp_path / "run"
    options = ["--architecture", "mlp", "--set", "body.layers=1", "--set", "body.width=16"]
    sizes = ["--epochs", "1", "--batch-size", "32", "--rollouts", "0", "--quiet"]
    arguments = ["--dataset", str(dataset), *options, *sizes, "--output", str(output)]
    assert train.main(arguments) == 0
    checkpoint = str(output / "last.safetensors")
    policy = find_policy(checkpoint)
    assert policy.env_kwargs == {"obs_mode": "features", "encoder": RANDOM_ENCODER}
    env = MetaWorldEnv(TASK, TASK, obs_mode="features")
    episode = rollout(env, Limited(policy.make(env), 3), seed=2**52)
    assert len(episode) == 3 and np.isfinite(episode.actions).all()
    env.close()
    capsys.readouterr()
    evaluate = ["evaluate", "--policy", checkpoint, "--tasks", TASK, "--scenes", "1"]
    assert program.main([*evaluate, "--resnet-weights", str(weights)]) == 2
    assert "Leave out the weights" in capsys.readouterr().err
    assert program.main([*evaluate, "--obs-mode", "state"]) == 2
    assert "there is no 'features'" in capsys.readouterr().err
    other = MetaWorldEnv(TASK, TASK, obs_mode="features", resnet_weights=weights)
    with pytest.raises(FleetToolsError, match=open_encoder(weights=weights).name):
        policy.make(other)


@needs_gl
def test_results_name_the_encoder(capsys):
    command = ["evaluate", "--policy", EXPERT, "--tasks", TASK, "--scenes", "1", "--workers", "0"]
    assert program.main([*command, "--obs-mode", "features", "--json", "--quiet"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["env_kwargs"] == {"obs_mode": "features", "encoder": RANDOM_ENCODER}
    assert summary["all"]["successes"] == 1
