"""Registration with Gymnasium, and imports of the package."""

import copy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from support.environments import IDS

from fleet_tools.config.tasks import load_task, task_names, task_path
from fleet_tools.envs.spec import EnvSpec as FleetSpec
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.errors import ConfigError, EpisodeOverError
from fleet_tools.registration import CUSTOM_ID, env_id, register_environments


def copied_spec(env: gymnasium.Env) -> EnvSpec:
    """Returns the spec of an environment after a round trip through JSON."""
    assert env.spec is not None
    return EnvSpec.from_json(env.spec.to_json())


def test_every_task_has_an_environment():
    assert sorted(map(env_id, task_names())) == IDS


def test_the_spec_of_a_made_environment_goes_through_json():
    kwargs = {"randomization": {"object_pose": False}, "reward": "dense", "obs_mode": "state"}
    env = gymnasium.make(IDS[0], max_episode_steps=9, **kwargs)
    again = gymnasium.make(copied_spec(env))
    assert again.spec is not None
    assert again.spec.max_episode_steps == 9
    assert again.spec.kwargs.items() >= kwargs.items()
    first, second = env.reset(seed=1)[0], again.reset(seed=1)[0]
    assert all(first[key].tobytes() == second[key].tobytes() for key in first)


def steps_of(env: gymnasium.Env) -> list[tuple[bool, str]]:
    """Returns truncation and outcome of each step of an episode in which nothing is done."""
    ends, truncated = [], False
    while not truncated:
        _, _, terminated, truncated, info = env.step(np.zeros(6, np.float32))
        assert not terminated
        ends.append((truncated, info["outcome"]))
    return ends


def test_gymnasiums_time_limit_is_one_of_the_environment_and_shortens_episodes():
    assert gymnasium.spec("FleetTools/Hammer-v0").max_episode_steps is None  # the task file has it
    kwargs: dict[str, Any] = {"tool": "claw", "object": "round_nail"}
    expected = [(False, "running")] * 2 + [(True, "time_limit")]
    env = gymnasium.make("FleetTools/Hammer-v0", max_episode_steps=3, **kwargs)
    for one in (env, gymnasium.make(copied_spec(env)), copy.deepcopy(unwrap(env))):
        one.reset(seed=0)
        start = unwrap(one).get_state()
        assert steps_of(one) == expected
        with pytest.raises(EpisodeOverError, match="ended as 'time_limit'"):
            one.step(np.zeros(6, np.float32))
        unwrap(one).set_state(start)  # the steps of the state count, not those of the wrapper
        assert steps_of(one) == expected
    long = gymnasium.make("FleetTools/Hammer-v0", max_episode_steps=10**6, **kwargs)
    long.reset(seed=0)
    assert len(steps_of(long)) == load_task("hammer").max_episode_steps


def test_a_users_own_task_is_made_by_its_path(tmp_path):
    own = tmp_path / "own.yaml"
    text = task_path("hammer").read_text()
    own.write_text(text.replace("name: hammer", "name: own").replace("limit_s: 10", "limit_s: 0.5"))
    env = gymnasium.make(CUSTOM_ID, task=str(own), tool="claw", object="round_nail")
    for one in (env, gymnasium.make(copied_spec(env))):
        one.reset(seed=0)
        ends = [one.step(np.zeros(6, np.float32)) for _ in range(3)]
        assert [truncated for *_, truncated, _ in ends] == [False, False, True]
        assert (unwrap(one).task.name, ends[-1][4]["outcome"]) == ("own", "time_limit")


def test_a_users_own_task_needs_a_path():
    with pytest.raises(ConfigError, match="or the path of a YAML file; given: None"):
        gymnasium.make(CUSTOM_ID)


def test_registering_again_changes_nothing():
    before = dict(gymnasium.registry)
    register_environments()
    assert gymnasium.registry == before


def test_a_specification_is_plain_data_with_tuples_as_lists():
    spec = FleetSpec.of("hammer", camera_size=(64, 48), randomization={"object_pose": False})
    assert FleetSpec.model_validate_json(spec.to_json()) == spec
    assert spec.kwargs["camera_size"] == [64, 48]
    own = Path(task_path("hammer"))
    given = {"camera_size": np.array([64, 48]), "keypoint_rows": np.int64(8), "tool": own.parent}
    plain = {"camera_size": [64, 48], "keypoint_rows": 8, "tool": str(own.parent)}
    assert FleetSpec.of(own, **given) == FleetSpec.of(str(own), **plain)
    for given in (1j, object(), float("nan"), b"x"):
        with pytest.raises(ConfigError, match=r"kwargs\.tool"):
            FleetSpec.of("hammer", tool=given)
    for task in (5, [], None):
        with pytest.raises(ConfigError, match="or the path of a YAML file"):
            FleetSpec.of(task)  # pyright: ignore[reportArgumentType]
