"""Checkpoints act in every program, in the environment with the observations that they read."""

import copy
import json
import pickle
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
import yaml
from gymnasium import wrappers
from support.collected import ONE_PAIR, write_quick_task
from support.folders import contents
from support.meshcat_recordings import tracks
from support.rendering import needs_gl
from support.small_checkpoints import SMALL_BODY, untrained

from fleet_tools import collect, view
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.part_configs import (
    MLPConfig,
    PointNetConfig,
    RecurrentConfig,
    ResNet18Config,
)
from fleet_tools.baselines.policies.policy import load_checkpoint_policy
from fleet_tools.baselines.training.record import BEST, LAST
from fleet_tools.config.tasks import task_path
from fleet_tools.dataset import Dataset
from fleet_tools.dataset.attempts import collect_episode
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import ConfigError, PolicyError
from fleet_tools.evaluation.policy_provenance import PolicyProvenance
from fleet_tools.policies.sources import find_policy
from fleet_tools.rollouts.rollout import rollout


@pytest.fixture(name="mlp", scope="module")
def _mlp(tmp_path_factory: pytest.TempPathFactory) -> str:
    return untrained(tmp_path_factory.mktemp("checkpoints") / "mlp.safetensors")


def write_short_task(folder: Path, steps: int) -> str:
    """Writes the task of the hammer with a lower limit of control steps; returns the path."""
    task = yaml.safe_load(task_path("hammer").read_text()) | {"time_limit_s": steps / 6}
    (folder / "hammer.yaml").write_text(yaml.safe_dump(task))
    return str(folder / "hammer.yaml")


def test_results_name_the_file(mlp):
    provenance = PolicyProvenance.of(find_policy(mlp))
    assert (provenance.name, provenance.source) == ("mlp", "mlp.safetensors")
    assert provenance.kind == "checkpoint"
    assert provenance.env_kwargs == {"obs_mode": "state"}


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("runs/hammer/best.safetensors", "hammer"),
        ("runs/hammer/last.safetensors", "hammer_last"),
        ("runs/bc_mlp/0/best.safetensors", "bc_mlp"),
        ("runs/hammer/better.safetensors", "better"),
    ],
)
def test_a_checkpoint_of_a_training_run_is_called_like_the_run(
    mlp, tmp_path, monkeypatch, file, name
):
    (tmp_path / file).parent.mkdir(parents=True)
    shutil.copy(mlp, tmp_path / file)
    monkeypatch.chdir((tmp_path / file).parent)  # a relative path has no folder in it
    for path in (tmp_path / file, Path(file).name):
        assert PolicyProvenance.of(find_policy(str(path))).name == name
    assert {Path(each).stem for each in (BEST, LAST)} == {"best", "last"}


def test_the_hash_follows_from_the_content_and_not_from_the_name(mlp, tmp_path):
    digest = find_policy(mlp).content_digest
    other = tmp_path / "other.safetensors"
    assert find_policy(untrained(other)).content_digest == digest
    wider = PolicyConfig(body=MLPConfig(layers=1, width=9))
    assert find_policy(untrained(other, wider)).content_digest != digest


@pytest.mark.slow
def test_view_shows_the_episode_of_a_checkpoint(mlp, tmp_path, capsys):
    file = tmp_path / "view.html"
    task = write_short_task(tmp_path, steps=10)
    options = ["--task", task, "--policy", mlp, "--seed", "3", "--output", str(file), "--json"]
    assert view.main(options) == 0
    episode = collect_episode(task, 3, policy=mlp)
    assert json.loads(capsys.readouterr().out)["outcomes"] == [episode.outcome]
    track = tracks(file.read_text())["/drake/annotations/keypoints/tool/head", "position"]
    X_WE = episode.observations["end_effector_pose"]
    p_EHead = episode.observations["tool_keypoints"][:, 0]
    p_WHead = np.einsum("tij,tj->ti", X_WE[..., :3], p_EHead) + X_WE[..., 3]
    np.testing.assert_allclose([p_W for _, p_W in track], p_WHead, atol=1e-5)


@needs_gl
def test_view_shows_the_cloud_that_a_checkpoint_reads(tmp_path):
    config = PolicyConfig(body=SMALL_BODY, clouds=PointNetConfig(widths=(4,)))
    env_kwargs = {"obs_mode": "point_cloud", "cloud_size": [40, 24]}
    cloud = untrained(tmp_path / "cloud.safetensors", config, **env_kwargs)
    file = tmp_path / "view.html"
    task = write_short_task(tmp_path, steps=3)
    options = ["--task", task, "--policy", cloud, "--output", str(file), "--quiet"]
    assert view.main(options) == 0
    assert any("/annotations/cloud/" in path for path, _ in tracks(file.read_text()))


def test_a_dataset_is_resumed_only_with_the_same_checkpoint(tmp_path, capsys):
    policy, folder = untrained(tmp_path / "policy.safetensors"), tmp_path / "data"
    options = ["--task", str(write_quick_task(tmp_path)), "--episodes", "2", "--workers", "0"]
    options += ["--policy", policy, "--output", str(folder), "--quiet", *ONE_PAIR]
    assert collect.main(options) == 0
    dataset = Dataset(folder)
    assert dataset.header.policy == f"policy.safetensors ({find_policy(policy).content_digest})"
    assert dataset.header.env_spec.kwargs["obs_mode"] == "state"
    env = dataset.header.make_env()
    record = dataset.stored()[1]
    direct = rollout(env, load_checkpoint_policy(policy, env), seed=record.seed)
    np.testing.assert_array_equal(dataset.episode(record.attempt).actions, direct.actions)
    before = contents(folder)
    untrained(tmp_path / "policy.safetensors", seed=1)
    assert collect.main(options) == 2
    assert "the policy is 'policy.safetensors (" in capsys.readouterr().err
    assert contents(folder) == before


def test_nothing_begins_where_a_checkpoint_cannot_act(mlp, tmp_path, capsys):
    for main, more in ((collect.main, ["--episodes", "1", "--workers", "0"]), (view.main, [])):
        output = str(tmp_path / "output.html")
        assert main(["--tool", "knife", "--policy", mlp, "--output", output, *more]) == 2
        assert "The observation does not fit the policy" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@needs_gl
@pytest.mark.parametrize(
    ("sees", "kwargs"),
    [
        (
            {"clouds": PointNetConfig(widths=(4,))},
            {"obs_mode": "point_cloud", "cloud_size": [40, 24], "cloud_sampling": "even"}
            | {"cloud_source": "vtk"},
        ),
        (
            {"images": ResNet18Config(width=4)},
            {"obs_mode": "rgbd", "camera_size": [48, 32], "channels": ["rgb"]},
        ),
    ],
)
def test_a_policy_is_given_the_observations_of_training(sees, kwargs, tmp_path):
    config = PolicyConfig(body=SMALL_BODY, **sees)
    assert find_policy(untrained(tmp_path / "policy", config, **kwargs)).env_kwargs == kwargs


def test_a_checkpoint_acts_through_wrappers_or_names_them(mlp):
    env = EnvSpec.of(task="hammer", split="train").make_tool_use()
    episodes = [
        rollout(each, load_checkpoint_policy(mlp, each), seed=1)
        for each in (env, wrappers.FilterObservation(env, sorted(env.features)))
    ]
    assert episodes[0].actions.tobytes() == episodes[1].actions.tobytes()
    for hiding in (
        wrappers.FlattenObservation(env),
        wrappers.FilterObservation(env, ["joint_velocity"]),
    ):
        with pytest.raises(ConfigError, match=type(hiding).__name__):
            load_checkpoint_policy(mlp, hiding)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))]
)
def test_a_recurrent_policy_is_copied_with_its_memory(tmp_path, copied):
    config = PolicyConfig(body=RecurrentConfig(type="gru", layers=1, width=8))
    env = EnvSpec.of(task="hammer", split="train").make_tool_use()
    policy = load_checkpoint_policy(untrained(tmp_path / "gru.safetensors", config), env)
    observation, _ = env.reset(seed=1)
    fresh = policy.act(observation)
    other = copied(policy)
    second = policy.act(observation)
    assert second.tobytes() == other.act(observation).tobytes() != fresh.tobytes()


def test_a_recurrent_policy_acts_in_one_environment_at_a_time(tmp_path):
    one, other = (EnvSpec.of(task="hammer").make_tool_use() for _ in range(2))
    seen, foreign = one.reset(seed=0)[0], other.reset(seed=0)[0]
    recurrent = PolicyConfig(body=RecurrentConfig(type="elman", layers=1, width=8))
    for config, remembers in ((recurrent, True), (None, False)):
        path = untrained(tmp_path / f"{remembers}.safetensors", config)
        policy = load_checkpoint_policy(path, one)
        first = policy.act(seen).tobytes()
        if remembers:
            with pytest.raises(PolicyError, match="NetworkPolicy got an observation of another"):
                policy.act(foreign)
            policy.reset()
        assert policy.act(foreign).tobytes() == first
