"""Checkpoints are evaluated in the environment that shows what they read."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from conftest import needs_gl
from evaluated import SMALL, a_result

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
from fleet_tools.baselines.policies.config import MLP, PointNet, PolicyConfig
from fleet_tools.baselines.policies.policy import load_policy
from fleet_tools.dataset.header import describe_action, describe_observation, installed_packages
from fleet_tools.episode import rollout
from fleet_tools.errors import FleetToolsError
from fleet_tools.evaluation.policies import identify
from fleet_tools.evaluation.result import decode_actions
from fleet_tools.evaluation.trial import make_trials
from fleet_tools.registration import make_environment

SMALL_BODY = MLP(layers=1, width=8)


def save(path, config, **keywords):
    """Stores an untrained policy for hammers."""
    env = make_environment(task="hammer", **keywords)
    blueprint = Blueprint.of(
        config, describe_observation(env), describe_action(env), environment=keywords
    )
    save_checkpoint(path, Checkpoint(blueprint, blueprint.create(seed=0).state_dict()))
    return str(path)


@pytest.fixture(name="mlp", scope="module")
def _mlp(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoints") / "mlp.safetensors"
    return save(path, PolicyConfig(body=SMALL_BODY))


def test_a_checkpoint_acts_as_it_does_by_itself(mlp):
    identity = identify(mlp)
    assert (identity.name, identity.source) == ("mlp", "mlp.safetensors")
    assert identity.kind == "checkpoint"
    assert identity.environment == {"obs_mode": "state"}
    (trial,) = SMALL.trials("hammer", "train", 1)
    came = make_trials(a_result(policy=identity, packages=installed_packages()), mlp)(trial)
    env = make_environment(task="hammer")
    direct = rollout(env, load_policy(mlp, env), seed=trial.seed)
    assert decode_actions(came.actions).tobytes() == direct.actions.tobytes()
    assert came.outcome == direct.outcome


def test_its_hash_is_of_its_content_and_its_name_is_not(mlp, tmp_path):
    other = save(tmp_path / "other.safetensors", PolicyConfig(body=SMALL_BODY))
    wider = save(tmp_path / "wider.safetensors", PolicyConfig(body=MLP(layers=1, width=9)))
    assert identify(other).content_digest == identify(mlp).content_digest
    assert identify(wider).content_digest != identify(mlp).content_digest


@needs_gl
def test_one_for_clouds_is_given_clouds_as_it_knows_them(tmp_path):
    config = PolicyConfig(body=SMALL_BODY, clouds=PointNet(widths=(4,)))
    keywords = {"obs_mode": "point_cloud", "cloud_size": [40, 24], "cloud_sampling": "even"}
    assert identify(save(tmp_path / "cloud", config, **keywords)).environment == keywords


@needs_gl
def test_one_for_pictures_is_given_those_that_it_reads(tmp_path):
    from fleet_tools.baselines.policies.config import ResNet18

    keywords = {"obs_mode": "rgbd", "camera_size": [48, 32], "channels": ["rgb"]}
    config = PolicyConfig(body=SMALL_BODY, pictures=ResNet18(width=4))
    assert identify(save(tmp_path / "pictures", config, **keywords)).environment == keywords


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path):
    (tmp_path / "policy.safetensors").write_text("weights")
    with pytest.raises(FleetToolsError, match="is no checkpoint"):
        identify(str(tmp_path / "policy.safetensors"))
