"""Checkpoints act in every program, in the environment that shows what they read."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
import yaml
from conftest import needs_gl
from evaluated import SMALL, a_result
from meshcat_recordings import tracks
from small_checkpoints import SMALL_BODY, untrained

from fleet_tools import collect, view
from fleet_tools.baselines.policies.config import MLP, PointNet, PolicyConfig, ResNet18
from fleet_tools.baselines.policies.policy import load_policy
from fleet_tools.config.tasks import task_path
from fleet_tools.dataset import Dataset
from fleet_tools.dataset.attempts import collect_episode
from fleet_tools.dataset.header import installed_packages
from fleet_tools.errors import FleetToolsError
from fleet_tools.evaluation.identity import identify
from fleet_tools.evaluation.result import decode_actions
from fleet_tools.evaluation.trial import make_trials
from fleet_tools.policies.sources import find
from fleet_tools.registration import make_environment
from fleet_tools.rollouts.episode import rollout


@pytest.fixture(name="mlp", scope="module")
def _mlp(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("checkpoints") / "mlp.safetensors")


def test_it_acts_everywhere_as_it_does_by_itself(mlp):
    (trial,) = SMALL.trials("hammer", "train", 1)
    env = make_environment(task="hammer", split="train")
    direct = rollout(env, load_policy(mlp, env), seed=trial.seed)
    result = a_result(policy=identify(find(mlp)), packages=installed_packages())
    evaluated = make_trials(result, find(mlp))(trial)
    collected = collect_episode("hammer", trial.seed, policy=mlp, split="train")
    assert decode_actions(evaluated.actions).tobytes() == direct.actions.tobytes()
    assert collected.actions.tobytes() == direct.actions.tobytes()
    assert evaluated.outcome == collected.outcome == direct.outcome


def test_results_say_which_file_it_was(mlp):
    identity = identify(find(mlp))
    assert (identity.name, identity.source) == ("mlp", "mlp.safetensors")
    assert identity.kind == "checkpoint"
    assert identity.environment == {"obs_mode": "state"}


def test_its_hash_is_of_its_content_and_its_name_is_not(mlp, tmp_path):
    other = untrained(tmp_path / "other.safetensors")
    wider = PolicyConfig(body=MLP(layers=1, width=9))
    assert find(other).content_digest == find(mlp).content_digest
    assert find(untrained(other, wider)).content_digest != find(mlp).content_digest


def test_it_is_shown_as_it_acts(mlp, tmp_path, capsys):
    file = tmp_path / "it.html"
    shown = ["--tool", "hammer", "--policy", mlp, "--seed", "3", "--save", str(file), "--json"]
    assert view.main(shown) == 0
    episode = collect_episode("hammer", 3, policy=mlp)
    assert json.loads(capsys.readouterr().out)["outcomes"] == [episode.outcome]
    way = tracks(file.read_text())["/drake/annotations/keypoints/tool/head", "position"]
    X_WE = episode.observations["end_effector_pose"]
    p_EHead = episode.observations["tool_keypoints"][:, 0]
    p_WHead = np.einsum("tij,tj->ti", X_WE[..., :3], p_EHead) + X_WE[..., 3]
    np.testing.assert_allclose([p_W for _, p_W in way], p_WHead, atol=1e-5)


@needs_gl
def test_one_for_clouds_is_shown_with_the_cloud_that_it_sees(tmp_path):
    config = PolicyConfig(body=SMALL_BODY, clouds=PointNet(widths=(4,)))
    keywords = {"obs_mode": "point_cloud", "cloud_size": [40, 24]}
    cloud = untrained(tmp_path / "cloud.safetensors", config, **keywords)
    file = tmp_path / "it.html"
    shown = ["--tool", "hammer", "--policy", cloud, "--save", str(file), "--quiet"]
    assert view.main(shown) == 0
    assert any("/annotations/cloud/" in path for path, _ in tracks(file.read_text()))


def test_it_is_collected_from_and_gone_on_with_by_itself_alone(tmp_path, capsys):
    task = yaml.safe_load(task_path("hammer").read_text()) | {"max_episode_steps": 3}
    (tmp_path / "hammer.yaml").write_text(yaml.safe_dump(task))
    policy, folder = untrained(tmp_path / "it.safetensors"), tmp_path / "data"
    options = ["--task", str(tmp_path / "hammer.yaml"), "--episodes", "1", "--workers", "0"]
    options += ["--policy", policy, "--output", str(folder), "--quiet", "--keep-failures"]
    assert collect.main(options) == 1  # who has learned nothing succeeds at nothing
    dataset = Dataset(folder)
    assert dataset.header.policy == f"it.safetensors ({find(policy).content_digest})"
    assert dataset.header.environment.kwargs["obs_mode"] == "state"
    env = make_environment(task=str(tmp_path / "hammer.yaml"))
    record = dataset.stored()[7]
    direct = rollout(env, load_policy(policy, env), seed=record.seed)
    np.testing.assert_array_equal(dataset.episode(record.attempt).actions, direct.actions)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    untrained(tmp_path / "it.safetensors", seed=1)
    assert collect.main(options) == 2
    assert "the policy is 'it.safetensors (" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_where_it_cannot_act_nothing_is_begun(mlp, tmp_path, capsys):
    options = ["--tool", "knife", "--episodes", "1", "--policy", mlp, "--workers", "0"]
    assert collect.main([*options, "--output", str(tmp_path / "data")]) == 2
    assert "The policy reads another layout" in capsys.readouterr().err
    shown = ["--tool", "knife", "--policy", mlp, "--save", str(tmp_path / "it.html")]
    assert view.main(shown) == 2
    assert "The policy reads another layout" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@needs_gl
def test_one_for_clouds_is_given_clouds_as_it_knows_them(tmp_path):
    config = PolicyConfig(body=SMALL_BODY, clouds=PointNet(widths=(4,)))
    keywords = {"obs_mode": "point_cloud", "cloud_size": [40, 24], "cloud_sampling": "even"}
    assert find(untrained(tmp_path / "cloud", config, **keywords)).environment == keywords


@needs_gl
def test_one_for_pictures_is_given_those_that_it_reads(tmp_path):
    keywords = {"obs_mode": "rgbd", "camera_size": [48, 32], "channels": ["rgb"]}
    config = PolicyConfig(body=SMALL_BODY, pictures=ResNet18(width=4))
    assert find(untrained(tmp_path / "pictures", config, **keywords)).environment == keywords


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path):
    (tmp_path / "policy.safetensors").write_text("weights")
    with pytest.raises(FleetToolsError, match="is no checkpoint"):
        find(str(tmp_path / "policy.safetensors"))
