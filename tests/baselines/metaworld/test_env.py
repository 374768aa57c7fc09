"""Meta-World's environments: bits, the goal, actions, ends of episodes, and scenes."""

import copy
import pickle
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st
from support.environments import bits
from support.rendering import needs_gl
from support.shares import few

pytest.importorskip("metaworld")

from metaworld.env_dict import ALL_V3_ENVIRONMENTS

from fleet_tools.baselines.metaworld.env import MetaWorldEnv
from fleet_tools.baselines.metaworld.expert import scripted_expert
from fleet_tools.baselines.metaworld.tasks import (
    MAX_STEPS,
    META_WORLD_ID,
    MetaWorldScene,
    read_task,
    task_set,
)
from fleet_tools.dataset import episode_file
from fleet_tools.envs.spec import EnvSpec, read_scene
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.errors import (
    ConfigError,
    EpisodeOverError,
    FleetToolsError,
    InvalidActionError,
    SimulationError,
    UnknownNameError,
)
from fleet_tools.policies.policy import StoredActions
from fleet_tools.registration import find_arena
from fleet_tools.rollouts.episode import first_difference
from fleet_tools.rollouts.rollout import rollout

FEW = ("reach-v3", "peg-insert-side-v3", "door-open-v3", "coffee-pull-v3")
pytestmark = pytest.mark.filterwarnings("error::UserWarning")


@pytest.fixture(scope="module")
def envs() -> dict[str, MetaWorldEnv]:
    return {task: MetaWorldEnv(task) for task in FEW}


@few(8)
@given(task=st.sampled_from(FEW), seed=st.integers(0, 2**53), before=st.integers(0, 2**53))
def test_a_seed_gives_the_same_bits_after_any_history(envs, task, seed, before):
    env = envs[task]
    generator = np.random.default_rng(seed)
    actions = generator.uniform(-1, 1, (30, 4)).astype(np.float32)
    rollout(env, StoredActions(actions[:7]), seed=before)
    one = rollout(env, StoredActions(actions), seed=seed)
    fresh = MetaWorldEnv(task)
    other = rollout(fresh, StoredActions(actions), seed=seed)
    assert first_difference(one, other) is None
    # Restored from its scene, through the file of an episode.
    scene = read_scene(MetaWorldScene.model_validate_json(one.scene.to_json()).model_dump())
    assert scene == one.scene
    assert first_difference(one, rollout(env, StoredActions(actions), scene=scene)) is None


@pytest.mark.parametrize("task", FEW)
def test_the_goal_is_seen_and_the_expert_succeeds(envs, task, tmp_path):
    """In the library as it is, the goal is zero, also after it has been shown: it is clipped."""
    env = envs[task]
    episodes = [rollout(env, scripted_expert(env), seed=seed) for seed in range(4)]
    goals = np.array([episode.observations["state"][:, -3:] for episode in episodes[:1]])[0]
    assert np.all(goals == goals[0]) and np.any(goals[0] != 0)
    np.testing.assert_allclose(goals[0], _goal_of_the_library(task, episodes[0].scene.seed))
    assert sum(episode.outcome == "success" for episode in episodes) >= 3
    for episode in episodes:
        assert abs(episode.actions).max() <= 1.0
        assert episode.success[-1] == (episode.outcome == "success")
        assert not episode.success[:-1].any()
    path = tmp_path / "episode.hdf5"
    path.write_bytes(episode_file.to_bytes(episodes[0], 0))
    read = episode_file.read(path)
    assert first_difference(read, episodes[0]) is None and read.scene == episodes[0].scene


def _goal_of_the_library(task: str, seed: int) -> np.ndarray:
    """Returns the goal by the library's own attributes, without this package."""
    inner: Any = ALL_V3_ENVIRONMENTS[task]()
    inner._freeze_rand_vec, inner.seeded_rand_vec, inner._set_task_called = False, True, True
    inner.seed(seed)
    inner.reset()
    return np.asarray(inner._target_pos, np.float32)


def test_policies_know_which_task_it_is():
    env = MetaWorldEnv("push-v3", tasks="mt10")
    observation, _ = env.reset(seed=0)
    names = task_set("mt10")
    assert observation["task"].tolist() == [float(name == "push-v3") for name in names]
    assert env.features["task"].entries == names and env.observation_space.contains(observation)
    alone = MetaWorldEnv("push-v3", tasks="push-v3,reach-v3")
    assert alone.reset(seed=0)[0]["task"].tolist() == [1.0, 0.0]


def test_actions_are_clipped_and_recorded_so(envs):
    env = envs["reach-v3"]
    bold, _ = np.array([3.0, -0.5, -9.0, 1.0], np.float32), env.reset(seed=1)
    *_, info = env.step(bold)
    assert info["action"].tolist() == [1.0, -0.5, -1.0, 1.0] and info["action_clipped"]
    digest = env.state_digest()
    env.reset(seed=1)
    env.step(info["action"])
    assert env.state_digest() == digest


@pytest.mark.parametrize(
    "action", [np.full(4, np.nan), np.full(4, np.inf), np.zeros(6), np.zeros(4, bool), "up"]
)
def test_bad_actions_change_nothing(envs, action, tmp_path, monkeypatch):
    """The library takes NaN, and MuJoCo writes a log file into the working directory."""
    monkeypatch.chdir(tmp_path)
    env = envs["reach-v3"]
    env.reset(seed=2)
    before = env.state_digest()
    with pytest.raises(InvalidActionError):
        env.step(action)
    assert env.state_digest() == before and not list(tmp_path.iterdir())


def test_an_episode_ends_at_the_time_limit_or_at_success(envs):
    env = envs["door-open-v3"]
    with pytest.raises(EpisodeOverError, match="No episode"):
        MetaWorldEnv("reach-v3").step(np.zeros(4, np.float32))
    idle = rollout(env, ZeroActions(), seed=0)
    assert (idle.outcome, len(idle)) == ("time_limit", MAX_STEPS)
    assert idle.truncated[-1] and not idle.terminated.any() and not idle.success.any()
    with pytest.raises(EpisodeOverError, match="time_limit"):
        env.step(np.zeros(4, np.float32))


class ZeroActions:
    """Stays where it is."""

    def reset(self) -> None:
        """Does nothing."""

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns zeros."""
        return np.zeros(4, np.float32)


def test_gymnasium_makes_and_accepts_it():
    env = gymnasium.make(META_WORLD_ID, task="reach-v3", tasks="mt10")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of observations without bounds
        check_env(env.unwrapped, skip_render_check=True)
    one, _ = env.reset(seed=3)
    other, _ = (
        EnvSpec(id=META_WORLD_ID, kwargs={"task": "reach-v3", "tasks": "mt10"}).make().reset(seed=3)
    )
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_scenes_of_other_tasks_and_versions_are_refused(envs):
    env = envs["reach-v3"]
    env.reset(seed=5)
    scene = env.scene
    with pytest.raises(ConfigError, match="Expected a scene of 'door-open-v3'"):
        envs["door-open-v3"].reset(options={"scene": scene})
    elsewhere = scene.model_copy(update={"random_vector": (*scene.random_vector[:-1], 0.5)})
    with pytest.raises(SimulationError, match="The seed 5 draws"):
        env.reset(options={"scene": elsewhere})
    with pytest.raises(UnknownNameError, match="arena"):
        read_scene({**scene.model_dump(), "arena": "MetaWorlds"})


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"task": "reech-v3"}, "reach-v3"),
        ({"task": "mt10"}, "'mt10' is not among 'mt50'"),
        ({"task": "basketball-v3", "tasks": "mt10"}, "not among 'mt10'"),
        ({"task": "reach-v3", "tasks": "mt11"}, "mt10"),
        ({"task": "reach-v3", "obs_mode": "point_cloud"}, "argument of an environment"),
        ({"task": "reach-v3", "size": 3}, "argument of an environment"),
        ({"task": "reach-v3,push-v3", "tasks": "reach-v3,push-v3"}, "is not among"),
    ],
)
def test_what_does_not_exist_is_refused(kwargs, words):
    with pytest.raises(FleetToolsError, match=words):
        EnvSpec(id=META_WORLD_ID, kwargs=kwargs).make()


def test_an_arena_is_found_by_the_id_and_tasks_are_described():
    assert find_arena("FleetTools/Hammer-v0").name == "FleetTools"
    with pytest.raises(UnknownNameError, match="MetaWorld"):
        find_arena("MetaWorlds/reach-v3")
    task = read_task("reach-v3")
    assert "metaworld: 3.1.1" in task.text and "reward: v2" in task.text
    assert task.content_digest != read_task("push-v3").content_digest
    assert len(task_set("mt10")) == 10 and set(task_set("mt10")) < set(task_set("mt50"))


@needs_gl
def test_images_show_the_robot_and_change_nothing():
    env, plain = (
        MetaWorldEnv("drawer-open-v3", render_mode="rgb_array"),
        MetaWorldEnv("drawer-open-v3"),
    )
    for each in (env, plain):
        each.reset(seed=0)
    before, digest = env.render(), env.state_digest()
    assert before is not None and (before.shape, before.dtype) == ((480, 640, 3), np.uint8)
    assert env.state_digest() == digest == plain.state_digest() and plain.render() is None
    red = (before[..., 0] > 100) & (before[..., 1:].max(-1) < 60)  # the arm
    floor = before[-40:, -40:].mean()
    assert 0.01 < red.mean() < 0.3 and abs(floor - before[:40].mean()) > 20  # upright
    for _ in range(20):
        env.step(np.array([1, 0, -1, 0], np.float32))
    after = env.render()
    assert after is not None and (after != before).any(-1).mean() > 0.002
    env.close()
    with pytest.raises(UnknownNameError, match="rgb_array"):
        MetaWorldEnv("reach-v3", render_mode="human")


def test_programs_of_tool_use_say_what_they_need(envs):
    with pytest.raises(ConfigError, match="tool-use environment"):
        unwrap(envs["reach-v3"])
    with pytest.raises(ConfigError, match="Expected a Fleet-Tools environment"):
        rollout(gymnasium.make("CartPole-v1"), ZeroActions(), seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("task", task_set("mt50"))
def test_who_does_nothing_does_not_succeed(task):
    """And in each task the expert does, in most scenes, the same in two environments."""
    env, other = MetaWorldEnv(task), MetaWorldEnv(task)
    for seed in range(3):
        assert rollout(env, ZeroActions(), seed=seed).outcome == "time_limit"
    solved = 0
    for seed in range(8):
        episode = rollout(env, scripted_expert(env), seed=seed)
        again = rollout(other, StoredActions(episode.actions), scene=episode.scene)
        assert first_difference(episode, again) is None
        solved += episode.outcome == "success"
    assert solved >= 4


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
@pytest.mark.parametrize("task", FEW)
def test_copies_continue_bit_for_bit(envs, task, copied):
    env, generator = envs[task], np.random.default_rng(3)
    env.reset(seed=4)
    for action in generator.uniform(-1, 1, (20, 4)).astype(np.float32):
        env.step(action)
    other, actions = copied(env), generator.uniform(-1, 1, (20, 4)).astype(np.float32)
    traces = []
    for each in (env, other):
        trace = [(*each.step(action), each.state_digest()) for action in actions]
        observation, info = each.reset()
        traces.append(bits([*trace, (observation, info, each.scene.to_json())]))
    assert traces[0] == traces[1]
    other.close()


def test_a_copy_that_arrives_elsewhere_is_refused(envs, monkeypatch):
    env = envs["reach-v3"]
    env.reset(seed=4)
    env.step(np.ones(4, np.float32))
    monkeypatch.setattr(MetaWorldEnv, "state_digest", lambda self: id(self))
    with pytest.raises(SimulationError, match="lead to another state"):
        copy.deepcopy(env)


def test_the_time_limit_of_gymnasiums_make_is_named():
    env = gymnasium.make(META_WORLD_ID, task="reach-v3", max_episode_steps=2)
    env.reset(seed=0)
    results = [env.step(np.zeros(4, np.float32)) for _ in range(2)]
    assert [each[4]["outcome"] for each in results] == ["running", "time_limit"]
    assert results[1][3]
    env.close()
