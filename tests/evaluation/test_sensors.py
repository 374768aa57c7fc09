"""Whoever evaluates chooses the cameras, and results say which: a policy cannot see better."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.collected import options, write_quick_task
from support.evaluated import an_evaluation, without_times
from support.seeing_policies import CLOUDS, GreedyPolicy
from support.small_checkpoints import SMALL_BODY, untrained

from fleet_tools import collect
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.part_configs import PointNetConfig
from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.replays import make_replays
from fleet_tools.envs.observation_modes import canonical_kwargs, observation_kwargs
from fleet_tools.envs.outcomes import SUCCESS
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import ConfigError, ResultError, UnknownNameError
from fleet_tools.evaluation.config import EvaluationConfig
from fleet_tools.evaluation.policy_provenance import PolicyProvenance
from fleet_tools.evaluation.result import Evaluation
from fleet_tools.evaluation.run import describe as describe_evaluation
from fleet_tools.evaluation.run import evaluate_policy
from fleet_tools.evaluation.scores import compare
from fleet_tools.parallel.workers import WorkerOptions
from fleet_tools.policies.sources import find_policy, load_policy

HERE = WorkerOptions(workers=0)


def cloud_policy(folder: Path, **env_kwargs: Any) -> str:
    config = PolicyConfig(body=SMALL_BODY, clouds=PointNetConfig(widths=(4,)))
    return untrained(folder / "cloud.safetensors", config, **CLOUDS, **env_kwargs)


def provenance(policy: str, **others: Any) -> PolicyProvenance:
    return PolicyProvenance.of(find_policy(policy), **others)


def test_stored_arguments_without_sensors_mean_ideal_ones():
    assert canonical_kwargs({**CLOUDS, "sensors": "ideal"}) == canonical_kwargs(CLOUDS)
    noisy = {**CLOUDS, "cloud_source": "rays", "sensors": "active_stereo"}
    assert observation_kwargs({**noisy, "split": "all"}) == noisy
    assert EnvSpec.of("hammer", **noisy).kwargs == {"task": "hammer", **noisy}
    assert "sensors" not in EnvSpec.of("hammer", sensors="ideal", **CLOUDS).kwargs


@pytest.mark.parametrize(
    ("read", "mode", "sight"),
    [
        (["joint_position", "point_cloud"], "point_cloud", "clouds"),
        (["joint_position", "object_keypoints"], "multitask_state", "keypoints"),
        (["point_cloud", "tool_keypoints"], "cloud_and_keypoints", "keypoints"),
    ],
)
def test_a_checkpoint_is_sent_only_the_sight_that_it_reads(tmp_path, read, mode, sight):
    """Labels of keypoints in its data do not move a policy on clouds into another track."""
    both: dict[str, Any] = {**CLOUDS, "obs_mode": "cloud_and_keypoints"}
    clouds = PointNetConfig(widths=(4,)) if "point_cloud" in read else None
    config = PolicyConfig(body=SMALL_BODY, clouds=clouds, reads=tuple(read))
    path = untrained(tmp_path / "policy.safetensors", config, **both)
    assert find_policy(path).env_kwargs["obs_mode"] == mode
    assert provenance(path).reads == sight

    envs = [
        EnvSpec.of("hammer", **both).make(),
        EnvSpec.of("hammer", **find_policy(path).env_kwargs).make(),
    ]
    one, two = (load_policy(path, env).act(env.reset(seed=3)[0]) for env in envs)
    np.testing.assert_array_equal(one, two)


def test_a_factory_may_not_choose_sensors():
    assert GreedyPolicy.env_kwargs["sensors"] == "ideal"
    with pytest.raises(UnknownNameError, match=r"may choose: 'sensors'.* chosen by whoever runs"):
        find_policy("support.seeing_policies:GreedyPolicy")


@pytest.mark.parametrize("learned", ["ideal", "active_stereo"])
def test_the_evaluation_chooses_whatever_a_checkpoint_has_learned_with(tmp_path, learned):
    policy = cloud_policy(tmp_path, sensors=learned)
    assert find_policy(policy).env_kwargs.get("sensors", "ideal") == learned
    for sensors in ("ideal", "active_stereo", "structured_light"):
        found = provenance(policy, sensors=sensors)
        assert found.sensors == sensors
        assert ("sensors" in found.env_kwargs) == (sensors != "ideal")
        config = EvaluationConfig(policy=policy, tool="hammer", sensors=sensors)
        assert describe_evaluation(config)[1].policy.sensors == sensors


def test_a_policy_that_sees_the_state_is_not_evaluated_with_cameras():
    for policy in ("zero", "expert"):
        with pytest.raises(ConfigError, match="uses no cameras"):
            describe_evaluation(EvaluationConfig(policy=policy, sensors="active_stereo"))
    config = EvaluationConfig(
        policy="zero", tool="hammer", sensors="active_stereo", obs_mode="point_cloud"
    )
    assert describe_evaluation(config)[1].policy.label == "zero (active_stereo)"


def test_a_policy_is_shown_what_the_evaluation_says_and_the_result_says_so(tmp_path):
    results, task = {}, str(write_quick_task(tmp_path))
    policy, here = "support.seeing_policies:SeeingPolicy", "privileged"  # it runs in this process
    for sensors in ("ideal", "active_stereo"):
        config = EvaluationConfig(
            policy=policy, track=here, protocol=task, split="train", scenes=1, sensors=sensors
        )
        results[sensors] = evaluate_policy(config, tmp_path / sensors, HERE)
    stored = json.loads((tmp_path / "active_stereo" / "result.json").read_text())
    assert stored["policy"]["env_kwargs"]["sensors"] == "active_stereo"
    assert stored["protocol_digest"] == results["ideal"].result.protocol_digest
    one, other = (evaluation.episodes[0] for evaluation in results.values())
    assert one.scene_digest == other.scene_digest and one.actions != other.actions
    again = EvaluationConfig(**{**config.model_dump(), "sensors": "ideal"})
    with pytest.raises(ResultError, match="environment"):  # another evaluation's folder
        evaluate_policy(again, tmp_path / "active_stereo", HERE)
    same = evaluate_policy(config, tmp_path / "again", HERE).episodes[0]
    assert without_times(same) == without_times(other)


@pytest.mark.parametrize(
    ("env_kwargs", "message"),
    [
        ({**CLOUDS, "sensors": "perfect"}, "unknown sensors 'perfect'"),
        ({**CLOUDS, "sensors": ["active_stereo"]}, "unknown sensors"),
        ({"sensors": "active_stereo"}, "'state' use no cameras"),
        ({"obs_mode": ["point_cloud"], "sensors": "active_stereo"}, "use no cameras"),
    ],
    ids=str,
)
def test_a_result_with_impossible_sensors_is_refused(env_kwargs, message):
    policy = provenance("zero").model_dump()
    with pytest.raises(ValueError, match=message):
        PolicyProvenance(**{**policy, "env_kwargs": env_kwargs})


def test_a_comparison_names_the_sensors():
    ideal = an_evaluation([SUCCESS] * 2, name="it")
    env_kwargs = {**CLOUDS, "cloud_source": "rays", "sensors": "active_stereo"}
    policy = ideal.result.policy.model_copy(update={"env_kwargs": env_kwargs})
    noisy = Evaluation(ideal.result.model_copy(update={"policy": policy}), ideal.episodes)
    compared = compare(ideal, noisy)
    assert (compared.first, compared.second) == ("it", "it (active_stereo)")


def test_a_dataset_says_how_it_was_seen_and_replays_to_the_same_bits(tmp_path):
    task = str(write_quick_task(tmp_path))
    observed = {}
    for sensors in ("ideal", "active_stereo"):
        folder = tmp_path / sensors
        env = ["--env", f"sensors={sensors}", "obs_mode=point_cloud", "cloud_size=[16,16]"]
        policy = ["--policy", "zero", "--quiet"]
        assert collect.main(options(folder, *env, *policy, task=task, episodes=1)) == 0
        dataset = Dataset(folder)
        assert dataset.header.env_spec.kwargs.get("sensors", "ideal") == sensors
        (record,) = dataset.manifest()
        assert make_replays(folder)(record).identical
        observed[sensors] = dataset.episode(record.attempt).observations["point_cloud"]
    assert (observed["ideal"] != observed["active_stereo"]).any()


@pytest.mark.parametrize("mode", ["state", "multitask_state", "cloud_and_keypoints"])
def test_who_is_given_keypoints_is_listed_with_those_that_read_them(mode):
    assert provenance("random", obs_mode=mode).reads == "keypoints"
    assert provenance("random", obs_mode="point_cloud").reads == "clouds"
