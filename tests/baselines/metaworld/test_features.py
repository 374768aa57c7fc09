"""Meta-World in features of images: the encoder, what is observed, stored and trained with."""

import json
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rendering import needs_gl
from support.shares import few

pytest.importorskip("metaworld")
torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from safetensors.torch import save_file
from support.encoder_weights import some_weights, write_weights

from fleet_tools import replay
from fleet_tools.baselines import train
from fleet_tools.baselines.metaworld import __main__ as program
from fleet_tools.baselines.metaworld import encoder as encoder_module
from fleet_tools.baselines.metaworld.encoder import (
    RANDOM_ENCODER,
    open_encoder,
    weights_digest,
)
from fleet_tools.baselines.metaworld.env import MetaWorldEnv
from fleet_tools.baselines.metaworld.expert import EXPERT, scripted_expert
from fleet_tools.baselines.metaworld.observations import (
    FEATURE_IMAGE_SIZE,
    FeatureObserver,
    MuJoCoRenderer,
)
from fleet_tools.baselines.policies.checkpoint import CheckpointError
from fleet_tools.baselines.policies.part_configs import ResNet18Config
from fleet_tools.dataset import collection
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
    """An episode in features of the random encoder."""
    folder = tmp_path_factory.mktemp("features")
    options = ["--tasks", TASK, "--obs-mode", "features", "--episodes", "1", "--workers", "0"]
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


# Datasets, training and evaluation.


@needs_gl
@pytest.mark.parametrize("workers", ["0", pytest.param("1", marks=pytest.mark.slow)])
def test_a_dataset_names_its_encoder_and_replays(dataset, workers, capsys):
    stored = Dataset(dataset)
    assert stored.header.env_spec.kwargs == {
        "task": TASK,
        "tasks": TASK,
        "obs_mode": "features",
        "encoder": RANDOM_ENCODER,
    }
    assert stored.header.observation["features"].shape == (512,)
    assert replay.main([str(dataset), "--episodes", "1", "--workers", workers, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["identical"] == 1


@needs_gl
def test_datasets_and_policies_of_another_encoder_are_refused(dataset, weights, tmp_path, capsys):
    command = ["collect", "--tasks", TASK, "--obs-mode", "features", "--episodes", "2"]
    collect = [*command, "--workers", "0", "--resnet-weights", str(weights), "--quiet"]
    with pytest.MonkeyPatch.context() as patch:  # episodes would be rendered for long
        patch.setattr(collection, "fill_with_bar", lambda *_, **__: None)
        program.main([*collect, "--output", str(tmp_path)])
    name = open_encoder(weights=weights).name
    header = Dataset(tmp_path / TASK).header
    assert header.env_spec.kwargs["encoder"] == name
    assert header.env_spec.kwargs["resnet_weights"] == str(weights)
    with pytest.raises(DatasetError, match=f"features: unit .*{RANDOM_ENCODER}.*{name}"):
        Samples([dataset, tmp_path / TASK])
    capsys.readouterr()
    assert program.main([*collect, "--output", str(dataset.parent)]) == 2
    assert RANDOM_ENCODER in capsys.readouterr().err  # a dataset is not continued by another one
    moved = {**header.env_spec.kwargs, "resnet_weights": str(tmp_path / "moved")}
    spec = header.env_spec.model_copy(update={"kwargs": moved})
    with pytest.raises(ConfigError, match=f"{name}.*moved.*put its file, or a link to it, there"):
        header.model_copy(update={"env_spec": spec}).make_env()


@needs_gl
def test_a_policy_is_trained_without_images_and_acts(dataset, weights, tmp_path, capsys):
    output = tmp_path / "run"
    options = ["--architecture", "mlp", "--set", "body.layers=1", "--set", "body.width=16"]
    sizes = ["--epochs", "1", "--validation-fraction", "0", "--quiet"]
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


RANDOM_DIGEST = "43c8ca2322c0f8e8"


def test_the_random_encoder_has_the_same_weights_on_every_machine():
    """Drawn uniformly by NumPy, they do not depend on PyTorch's version."""
    torch.manual_seed(5)
    before = torch.get_rng_state()
    encoder = encoder_module._random_encoder.__wrapped__()
    assert (encoder.name, weights_digest(encoder.network.state_dict())) == (
        RANDOM_ENCODER,
        RANDOM_DIGEST,
    )
    assert torch.equal(torch.get_rng_state(), before)
    state = encoder.network.state_dict()
    for name in ("conv1.weight", "layer4.1.conv2.weight"):
        outputs, _, height, width = state[name].shape
        variance = 2 / (outputs * height * width)  # He et al. 2015
        assert float(state[name].var()) == pytest.approx(variance, rel=0.05)


@few(5)
@given(seed=st.integers(0, 2**32 - 1), threads=st.integers(1, 4))
def test_features_do_not_depend_on_threads_and_leave_them(seed, threads):
    image = np.random.default_rng(seed).integers(0, 256, (64, 64, 3), np.uint8)
    former, encoder = torch.get_num_threads(), open_encoder()
    expected = encoder.encode(image)
    try:
        torch.set_num_threads(threads)
        found = encoder.encode(image)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(former)
    assert found.tobytes() == expected.tobytes() and found.dtype == np.float32


def test_the_name_tells_the_weights_that_are_used(weights, tmp_path):
    """Neither the classifier, nor counters, nor the order in the file change the encoder."""
    name = open_encoder(weights=weights).name
    used = {
        key: value
        for key, value in reversed(some_weights(1).items())
        if not key.startswith("fc.") and not key.endswith("num_batches_tracked")
    }
    save_file(used, tmp_path / "used.safetensors")
    assert open_encoder(weights=str(tmp_path / "used.safetensors")).name == name
    assert open_encoder(name, weights) is open_encoder(name, weights)
    used["bn1.weight"] = used["bn1.weight"] + 1e-7
    save_file(used, tmp_path / "used.safetensors")  # the same path, read again
    assert open_encoder(weights=tmp_path / "used.safetensors").name != name


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: {"weights": torch.ones(2)}, "conv1.weight is missing"),
        (lambda state: state | {"conv1.weight": torch.ones(64, 1, 7, 7)}, r"\(64, 1, 7, 7\)"),
        (lambda state: {key: value.half() for key, value in state.items()}, "float16"),
        (lambda state: state | {"bn1.bias": torch.full((64,), torch.nan)}, "NaN"),
        (lambda state: state | {"layer5.0.conv1.weight": torch.ones(2)}, "does not belong"),
    ],
)
def test_weights_of_another_network_are_refused(change, words, tmp_path):
    path = tmp_path / "other.safetensors"
    save_file(change(some_weights(2)), path)
    with pytest.raises(CheckpointError, match=rf"(?s)other\.safetensors.*{words}.*torchvision"):
        open_encoder(weights=path)


def test_files_that_are_no_weights_are_refused(tmp_path, weights, capsys):
    pickled, cut = tmp_path / "resnet18.pth", tmp_path / "cut.safetensors"
    torch.save({"conv1.weight": torch.ones(1)}, pickled)
    cut.write_bytes(weights.read_bytes()[:-7])
    for path in (pickled, cut):
        with pytest.raises(CheckpointError, match=r"is not a safetensors file.*save_file"):
            open_encoder(weights=path)
    huge = tmp_path / "huge.safetensors"
    with huge.open("wb") as file:
        file.truncate(10**9)  # without blocks on the disk
    for path, words in (
        (tmp_path / "absent", "is not a file"),
        (tmp_path, "is not a file"),
        (Path("/dev/zero"), "is not a file"),
        ("\0", "cannot be opened|is not a file"),
        (huge, "too large"),
    ):
        with pytest.raises(ConfigError, match=words):
            open_encoder(weights=path)
    command = ["collect", "--tasks", TASK, "--episodes", "1", "--output", str(tmp_path / "new")]
    wrong = ["--obs-mode", "features", "--resnet-weights", str(pickled)]
    assert program.main([*command, *wrong]) == 2
    assert "torchvision" in capsys.readouterr().err and not (tmp_path / "new").exists()
    assert program.main([*command, "--resnet-weights", str(weights)]) == 2
    assert "--obs-mode features" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"encoder": RANDOM_ENCODER}, "obs_mode='state'"),
        ({"obs_mode": "features", "encoder": "resnet18-0"}, "resnet_weights"),
        ({"obs_mode": "features", "encoder": 3}, "encoder 3"),
        ({"obs_mode": "features", "resnet_weights": 3}, "cannot be opened"),
        ({"obs_mode": "feature"}, "features"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(kwargs, words):
    with pytest.raises(FleetToolsError, match=words):
        MetaWorldEnv(TASK, **kwargs)


def test_another_file_is_not_taken_for_the_encoder(weights):
    with pytest.raises(ConfigError, match="Leave out the weights"):
        MetaWorldEnv(TASK, obs_mode="features", encoder=RANDOM_ENCODER, resnet_weights=weights)
    with pytest.raises(ConfigError, match="has others"):
        MetaWorldEnv(TASK, obs_mode="features", encoder="resnet18-0", resnet_weights=weights)
