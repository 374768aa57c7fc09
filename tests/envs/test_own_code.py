"""Observation modes, renderers and arenas of a user's own, in every program and in its workers."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from support.own_code import NAME, STEPS, DistanceRenderer

from fleet_tools import collect, evaluate, replay
from fleet_tools.dataset import Dataset
from fleet_tools.dataset.__main__ import main as dataset
from fleet_tools.envs.observation_modes import observation_kwargs, policy_kwargs
from fleet_tools.envs.spec import EnvSpec, read_scene
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.errors import ConfigError, FleetToolsError, UnknownNameError
from fleet_tools.evaluation.result_folder import load_evaluation
from fleet_tools.perception.renderer import RayRenderer
from fleet_tools.utils.imports import TRUSTED_MODULES, is_trusted

MODULE = "support.own_code"
SPEED, DISTANCE = f"{MODULE}:SPEED", f"{MODULE}:DistanceRenderer"
SMALL: dict[str, Any] = {"camera_size": [24, 16]}
HAMMER = "FleetTools/Hammer-v0"


@pytest.fixture(autouse=True)
def _nothing_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRUSTED_MODULES, "")


# --- Programs -------------------------------------------------------------------------------


def test_programs_and_their_workers_have_a_mode_of_ones_own(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    from fleet_tools.baselines import train

    data, run, result = (str(tmp_path / name) for name in ("data", "run", "result"))
    asked = ["--tool", "hammer", "--episodes", "2", "--obs-mode", SPEED, "--output", data]
    assert collect.main([*asked, "--workers", "1", "--quiet"]) == 0
    header = Dataset(Path(data)).header
    assert header.env_spec.obs_mode == SPEED and "top_speed" in header.observation

    # Who reads data runs no code that they name.
    monkeypatch.setenv(TRUSTED_MODULES, "")
    monkeypatch.delitem(sys.modules, MODULE)
    learn = ["--dataset", data, "--architecture", "mlp", "--epochs", "1", "--output", run]
    assert train.main([*learn, "--quiet"]) == 0
    policy = str(Path(run) / "last.safetensors")
    act = ["--policy", policy, "--tool", "hammer", "--split", "train", "--scenes", "1"]
    act += ["--output", result, "--workers", "1", "--quiet"]
    again = [data, "--workers", "0", "--quiet"]
    for program in (partial(evaluate.main, act), partial(replay.main, again)):
        assert program() == 2
        assert f"set the environment variable {TRUSTED_MODULES}={MODULE}" in capsys.readouterr().err
    assert MODULE not in sys.modules

    monkeypatch.setenv(TRUSTED_MODULES, MODULE)
    assert evaluate.main(act) == 0
    assert load_evaluation(Path(result)).result.policy.env_kwargs["obs_mode"] == SPEED
    assert replay.main(again) == 0


def test_stored_episodes_are_observed_by_a_renderer_of_ones_own(tmp_path, monkeypatch):
    data, clouds, state = (str(tmp_path / name) for name in ("data", "clouds", "state"))
    task = ["--tool", "hammer", "--episodes", "1", "--workers", "0", "--quiet"]
    assert collect.main([*task, "--output", data]) == 0
    look = ["--obs-mode", "point_cloud", "--env", f"cloud_source={DISTANCE}", "camera_size=[24,16]"]
    assert dataset(["observe", data, *look, "--output", clouds, "--workers", "1", "--quiet"]) == 0
    (episode,) = Dataset(Path(clouds))
    seen = episode.observations["point_cloud"]
    assert {*seen[..., 3].ravel()} == {1.0, -1.0}
    monkeypatch.setenv(TRUSTED_MODULES, "")
    back = ["observe", clouds, "--obs-mode", "state", "--output", state, "--workers", "0"]
    assert dataset([*back, "--quiet"]) == 0  # which needs no renderer


def test_episodes_of_an_arena_of_ones_own_are_collected_by_workers(tmp_path, monkeypatch):
    from fleet_tools.dataset.attempts import make_attempts
    from fleet_tools.dataset.collection import collect, describe_collection, exit_code
    from fleet_tools.parallel.workers import WorkerOptions
    from fleet_tools.policies.sources import find_policy

    facts = {"id": f"{NAME}/Count-v0", "kwargs": {"task": "count"}}
    with pytest.raises(ValueError, match=f"{TRUSTED_MODULES}={MODULE}"):
        EnvSpec.model_validate(facts)
    monkeypatch.setenv(TRUSTED_MODULES, MODULE)
    policy = find_policy("random")
    header = describe_collection(EnvSpec.model_validate(facts), policy, 0, False)
    make = partial(make_attempts, policy=policy, verify=True)
    done = collect(tmp_path, header, make, 2, WorkerOptions(workers=1), quiet=True)
    assert exit_code(done) == 0
    episodes = list(Dataset(tmp_path))
    assert [len(each) for each in episodes] == [STEPS] * 2
    assert all(read_scene(json.loads(each.scene.to_json())) == each.scene for each in episodes)
    assert replay.main([str(tmp_path), "--workers", "0", "--quiet"]) == 0


# --- Environments ---------------------------------------------------------------------------


def test_a_mode_of_ones_own_is_part_of_the_observation():
    env = gymnasium.make(HAMMER, obs_mode=SPEED)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert {"top_speed", "joint_position"} <= observation.keys() and len(observation) == 6
    kwargs = {"obs_mode": SPEED, "cloud_size": [4, 4]}
    assert observation_kwargs({**kwargs, "split": "all"}) == kwargs
    assert is_trusted(SPEED)  # who makes an environment named it


def test_images_and_clouds_come_from_a_renderer_of_ones_own():
    kwargs = {"obs_mode": "rgbd", "channels": ["rgb", "depth"], "image_source": DISTANCE, **SMALL}
    env = unwrap(gymnasium.make(HAMMER, **kwargs))
    for seed in (0, 1, 2):
        observation, _ = env.reset(seed=seed)
        assert env.observation_space.contains(observation)
        assert (observation["wrist_rgb"] == 7).all()
        assert np.ptp(observation["wrist_depth"]) == 0 < observation["wrist_depth"][0, 0]
    made = DistanceRenderer.made[-1]
    assert made.scenes == 3 >= made.worlds
    cloud_env = gymnasium.make(HAMMER, obs_mode="point_cloud", cloud_source=DISTANCE, **SMALL)
    cloud = cloud_env.reset(seed=0)[0]["point_cloud"]
    assert set(cloud[:, 3]) == {1.0, -1.0}


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"obs_mode": "speed"}, "Unknown obs_mode: 'speed'.*Or module:name of one of your own"),
        ({"obs_mode": "no_such:MODE"}, "module 'no_such' cannot be imported"),
        ({"obs_mode": ":SPEED"}, "not of the form"),
        ({"obs_mode": f"{MODULE}:SPED"}, "Unknown observation mode in .*Did you mean 'SPEED'"),
        ({"obs_mode": f"{MODULE}:top_speed"}, "Unknown observation mode in .*EMPTY, FLAT, SPEED"),
        ({"obs_mode": f"{MODULE}:EMPTY"}, "must return a dict of `Observable`"),
        ({"obs_mode": "point_cloud", "cloud_source": f"{MODULE}:SPEED"}, "Unknown renderer in"),
        ({"obs_mode": "point_cloud", "cloud_source": "builtins:dict"}, "cannot be created"),
        ({"obs_mode": "rgbd", "image_source": DISTANCE}, "shows depth, .*, not segmentation"),
        ({"obs_mode": "rgbd", "image_source": "rays"}, "not depth, rgb, segmentation"),
        ({"obs_mode": "state", "sensors": "active_stereo"}, "no cameras"),
        ({"obs_mode": SPEED, "sensors": "active_stereo"}, "no cameras"),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_refused_when_the_environment_is_made(kwargs, message):
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        gymnasium.make(HAMMER, **kwargs)


def test_an_entry_of_another_shape_than_it_says_is_refused():
    with pytest.raises(ConfigError, match=r"shape \(2,\); expected \(1,\)"):
        gymnasium.make(HAMMER, obs_mode=f"{MODULE}:FLAT").reset(seed=0)


def test_stored_specifications_run_trusted_code_alone():
    for kwargs in ({"obs_mode": "os:path"}, {"obs_mode": "rgbd", "image_source": DISTANCE}):
        spec = EnvSpec.model_validate_json(EnvSpec.of("hammer", **kwargs).to_json())
        with pytest.raises(FleetToolsError, match=TRUSTED_MODULES):
            spec.make()
    for use in (lambda: EnvSpec.of("hammer", obs_mode="speed").make(),
                lambda: observation_kwargs({"obs_mode": "speed"})):  # fmt: skip
        with pytest.raises(UnknownNameError, match="obs_mode: 'speed'"):
            use()
    assert "sensors" not in policy_kwargs()


def test_rays_show_no_images():
    nothing: Any = None
    with pytest.raises(ConfigError, match="not images"):
        RayRenderer().images(nothing, [], ["rgb"])
