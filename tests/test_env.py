import contextlib
import json
import shutil
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import yaml
from conftest import drive, needs_gl, press, press_until_sliding, same
from gymnasium.utils.env_checker import check_env

from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import (
    ConfigError,
    EpisodeOverError,
    FleetToolsError,
    SimulationError,
    UnknownNameError,
)
from fleet_tools.sim.scene import sample_scene
from fleet_tools.utils.resources import assets_root, task_configs_root

STILL = np.zeros(6, np.float32)
ID = "FleetTools/Hammer-v0"


# --- Gymnasium's own checks -----------------------------------------------------------------

UNBOUNDED = "ignore:.*A Box observation space m..imum value is:UserWarning"


@pytest.mark.filterwarnings(UNBOUNDED)
@pytest.mark.parametrize("reward", ["sparse", "dense"])
def test_gymnasiums_checks_pass(make, reward):
    check_env(make(reward=reward), skip_render_check=True)


@needs_gl
@pytest.mark.filterwarnings(UNBOUNDED)
def test_gymnasiums_checks_pass_with_rendering(make):
    check_env(make(render_mode="rgb_array"))


# --- Outcomes and rewards -------------------------------------------------------------------


def test_success_terminates(hammer):
    hammer.reset(seed=0)
    results = drive(hammer)
    _, reward, terminated, truncated, info = results[-1]
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["outcome"] == "success" and info["progress"] == 1.0
    assert info["success"] is info["is_success"] is info["success_once"] is True
    slide = hammer.world_state().object_joints["slide"]
    assert slide >= hammer.task.success[0].at_least
    for _, reward, terminated, truncated, info in results[:-1]:
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert (info["outcome"], info["success"]) == ("running", False)


@pytest.mark.parametrize("limit", [None, 4])
def test_the_time_limit_truncates_and_says_so(limit):
    env = gymnasium.make(ID, tool="claw", object="round_nail", max_episode_steps=limit)
    env.reset(seed=0)
    steps = limit or env.spec.max_episode_steps
    for k in range(1, steps + 1):
        _, _, terminated, truncated, info = env.step(STILL)
        assert (terminated, truncated) == (False, k == steps)
        assert info["outcome"] == ("time_limit" if k == steps else "running")
    assert info["success"] is False


def test_an_environment_without_wrappers_counts_for_itself():
    env = ToolUseEnv("hammer", tool="claw", object="round_nail")
    env.reset(seed=0)
    for _ in range(env.task.max_episode_steps):
        *_, truncated, info = env.step(STILL)
    assert (truncated, info["outcome"]) == (True, "time_limit")
    with pytest.raises(EpisodeOverError, match="ended as 'time_limit'"):
        env.step(STILL)


def test_a_branch_counts_its_steps_from_the_episodes_start(hammer):
    hammer.reset(seed=0)
    hammer.step(STILL)
    state = hammer.get_state()
    hammer.reset(seed=1)
    hammer.set_state(state)
    ends = [hammer.step(STILL)[3] for _ in range(hammer.task.max_episode_steps - 1)]
    assert not any(ends[:-1]) and ends[-1]


@pytest.mark.parametrize("seed", range(5))
def test_doing_nothing_never_succeeds(make, seed):
    env = make()
    env.reset(seed=seed)
    infos = [env.step(STILL)[4] for _ in range(env.task.max_episode_steps)]
    assert not any(info["success"] for info in infos)
    slide = env.world_state().object_joints["slide"]
    assert slide < 0.02 * env.task.success[0].at_least


def test_an_episode_that_is_over_is_over(hammer):
    hammer.reset(seed=0)
    drive(hammer)
    before = hammer.state_digest()
    with pytest.raises(EpisodeOverError, match=r"ended as 'success'; call reset\(\)"):
        hammer.step(STILL)
    assert hammer.state_digest() == before
    hammer.reset(seed=0)
    assert hammer.step(STILL)[4]["outcome"] == "running"


def test_before_the_first_reset_there_is_no_episode():
    env = ToolUseEnv("hammer")
    for use in (
        lambda: env.step(STILL),
        env.render,
        env.get_state,
        env.state_digest,
        env.world_state,
    ):
        with pytest.raises(EpisodeOverError, match="reset"):
            use()


# --- Simulation errors ----------------------------------------------------------------------


def with_velocity(env, velocity):
    """The present state with every joint of the arm at an absurd velocity."""
    state = env.get_state()
    x = state.snapshot.x.copy()
    x[8:15] = velocity
    return replace(state, snapshot=replace(state.snapshot, x=x))


def test_a_failed_solver_is_an_outcome_of_its_own(hammer):
    hammer.reset(seed=0)
    hammer.set_state(with_velocity(hammer, 1e10))
    observation, reward, terminated, truncated, info = hammer.step(STILL)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert (info["outcome"], info["success"]) == ("simulation_error", False)
    assert "step 1" in info["error"]
    assert hammer.observation_space.contains(observation)
    assert all(np.isfinite(value).all() for value in observation.values())
    with pytest.raises(EpisodeOverError, match="ended as 'simulation_error'"):
        hammer.step(STILL)


def test_after_a_failed_solver_a_reset_mends_everything(hammer):
    hammer.reset(seed=1)
    fresh = [hammer.step(press(hammer))[0] for _ in range(5)], hammer.state_digest()
    hammer.reset(seed=0)
    hammer.set_state(with_velocity(hammer, 1e10))
    hammer.step(STILL)
    hammer.reset(seed=1)
    again = [hammer.step(press(hammer))[0] for _ in range(5)], hammer.state_digest()
    assert all(map(same, fresh[0], again[0]))
    assert fresh[1] == again[1]


def test_the_state_after_a_failed_solver_can_be_taken_and_refused(hammer):
    hammer.reset(seed=0)
    hammer.set_state(with_velocity(hammer, 1e10))
    hammer.step(STILL)
    with contextlib.suppress(FleetToolsError):  # never a bare error of Drake's
        hammer.set_state(hammer.get_state())
    hammer.reset(seed=0)
    assert hammer.step(STILL)[4]["outcome"] == "running"


@pytest.mark.parametrize("velocity", [1e200, np.nan, np.inf])
def test_a_state_that_cannot_be_is_refused(hammer, velocity):
    hammer.reset(seed=0)
    with pytest.raises(SimulationError):
        hammer.set_state(with_velocity(hammer, velocity))
    hammer.reset(seed=0)
    assert hammer.step(STILL)[4]["outcome"] == "running"


# --- Keywords and options -------------------------------------------------------------------


@pytest.mark.parametrize(
    "keywords, said",
    [
        ({"obs_mode": "stat"}, "obs_mode 'stat'; did you mean 'state'"),
        ({"reward": "dens"}, "reward 'dens'; did you mean 'dense'"),
        ({"render_mode": "rgb"}, "render_mode 'rgb'"),
        ({"robot_visuals": "frank"}, "robot_visuals 'frank'; did you mean 'franka'"),
        ({"tool": "clow"}, "'clow'; did you mean 'claw'"),
        ({"object": "round_nial"}, "'round_nial'; did you mean 'round_nail'"),
        ({"task": "hamer"}, "task 'hamer'; did you mean 'hammer'"),
        ({"randomization": {"object_pos": False}}, "did you mean 'object_pose'"),
    ],
)
def test_a_bad_keyword_is_refused_with_the_nearest(keywords, said):
    with pytest.raises(UnknownNameError, match=said):
        ToolUseEnv(**({"task": "hammer"} | keywords))


def test_a_bad_switch_is_refused():
    with pytest.raises(ConfigError, match="randomization is 'on', 'off' or a mapping"):
        ToolUseEnv("hammer", randomization="onn")


@pytest.mark.filterwarnings("ignore:.*render.mode.*:UserWarning")
def test_errors_stay_typed_through_gymnasium():
    for keywords in ({"tool": "clow"}, {"obs_mode": "stat"}, {"render_mode": "rgb"}):
        with pytest.raises(UnknownNameError, match="There is no"):
            gymnasium.make(ID, **keywords)


def changed(env, **changes):
    return json.loads(env.scene.to_json()) | changes


@pytest.mark.parametrize(
    "options, said",
    [
        (lambda env: {"scne": 1}, "option of reset 'scne'; did you mean 'scene'"),
        (lambda env: {"scene": changed(env, task="wrench")}, "task 'wrench'"),
        (lambda env: {"scene": changed(env, tool="clow")}, "did you mean 'claw'"),
        (lambda env: {"scene": changed(env, tol="claw")}, "did you mean 'tool'"),
        (lambda env: {"scene": changed(env, tool_mass_scale=-1)}, "tool_mass_scale"),
        (lambda env: {"scene": changed(env, joint_resistance={"slid": 30.0})}, "slid"),
        (lambda env: {"scene": changed(env, cameras={})}, "places the cameras"),
        (lambda env: {"scene": "0"}, "valid dictionary"),
    ],
)
def test_bad_options_are_refused_and_nothing_changes(hammer, options, said):
    hammer.reset(seed=0)
    hammer.step(STILL)
    before, scene = hammer.state_digest(), hammer.scene
    generator = hammer.np_random.bit_generator.state
    with pytest.raises((ConfigError, UnknownNameError), match=said):
        hammer.reset(seed=5, options=options(hammer))
    assert hammer.state_digest() == before
    assert hammer.scene == scene
    assert hammer.np_random.bit_generator.state == generator
    assert hammer.step(STILL)[4]["outcome"] == "running"


def test_a_scene_is_restored_from_its_value_and_from_its_json(make):
    env = make()
    drawn, _ = env.reset(seed=7)
    scene = env.scene
    for given in (scene, scene.model_dump(), json.loads(scene.to_json())):
        env.reset(seed=1)
        observation, _ = env.reset(options={"scene": given})
        assert env.scene == scene
        assert same(observation, drawn)


def test_a_seed_draws_the_scene_that_the_sampler_draws(make):
    env = make(randomization={"object_pose": False}, tool="mallet")
    env.reset(seed=9)
    switches = {"object_pose": False}
    assert env.scene == sample_scene(env.task, 9, tool="mallet", randomization=switches)


def test_later_episodes_follow_from_the_seed(hammer):
    scenes = []
    for _ in range(2):
        hammer.reset(seed=3)
        drawn = [hammer.scene]
        for _ in range(3):
            hammer.reset()
            drawn.append(hammer.scene)
        scenes.append(drawn)
    assert scenes[0] == scenes[1]
    assert len({scene.seed for scene in scenes[0]}) == 4


# --- Branching ------------------------------------------------------------------------------


def test_branches_from_one_state_are_independent(hammer):
    press_until_sliding(hammer, seed=0)
    state = hammer.get_state()
    observation = hammer.set_state(state)
    down = hammer.step(press(hammer))[0]
    hammer.set_state(state)
    up = hammer.step(np.float32([0, 0, -1, 0, 0, 0]))[0]
    assert not same(down, up)
    assert same(hammer.set_state(state), observation)
    assert same(hammer.step(press(hammer))[0], down)


def test_a_branch_remembers_outcome_and_progress(hammer):
    hammer.reset(seed=0)
    drive(hammer)
    over = hammer.get_state()
    hammer.reset(seed=1)
    hammer.set_state(over)
    assert hammer.get_state().success_once
    with pytest.raises(EpisodeOverError, match="ended as 'success'"):
        hammer.step(STILL)


def test_progress_is_measured_from_the_episodes_start_in_a_branch(hammer):
    press_until_sliding(hammer, seed=0)
    state = hammer.get_state()
    progress = hammer.step(STILL)[4]["progress"]
    assert progress > 0.0
    hammer.reset(seed=1)
    hammer.set_state(state)
    assert hammer.step(STILL)[4]["progress"] == progress


def test_a_state_of_another_task_is_refused(hammer):
    hammer.reset(seed=0)
    state = hammer.get_state()
    other = replace(state, scene=state.scene.model_copy(update={"task": "wrench"}))
    with pytest.raises(ConfigError, match="'wrench'"):
        hammer.set_state(other)


# --- A user's own ---------------------------------------------------------------------------


def test_a_task_and_a_tool_of_a_users_own_need_no_python(tmp_path):
    data = yaml.safe_load((task_configs_root() / "hammer.yaml").read_text())
    data |= {"name": "mine", "max_episode_steps": 3}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(data))
    tool = shutil.copytree(assets_root() / "tools" / "hammer" / "claw", tmp_path / "my_hammer")
    env = gymnasium.make(ID, task=str(tmp_path / "mine.yaml"), tool=str(tool))
    env.reset(seed=0)
    assert env.unwrapped.scene.task == "mine"
    assert env.step(STILL)[4]["outcome"] == "running"


def test_the_time_limit_of_a_users_own_task_is_its_own(tmp_path):
    data = yaml.safe_load((task_configs_root() / "hammer.yaml").read_text())
    data |= {"name": "mine", "max_episode_steps": 3}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(data))
    env = gymnasium.make(ID, task=str(tmp_path / "mine.yaml"), tool="claw", object="round_nail")
    env.reset(seed=0)
    assert [env.step(STILL)[3] for _ in range(3)] == [False, False, True]
