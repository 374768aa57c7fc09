"""The environment: outcomes, rewards, errors, arguments, options and branching."""

import contextlib
import inspect
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from support.environments import bits, drive, press, with_velocity
from support.rendering import needs_gl

from fleet_tools.config.predicates import JointDisplacement
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import (
    ConfigError,
    EpisodeOverError,
    FleetToolsError,
    SimulationError,
    UnknownNameError,
)
from fleet_tools.sim.scene import sample_scene

STILL = np.zeros(6, np.float32)
ID = "FleetTools/Hammer-v0"


def required_displacement(env: ToolUseEnv) -> float:
    """Returns how far the nail must slide for success, m."""
    predicate = env.task.success[0]
    assert isinstance(predicate, JointDisplacement)
    return predicate.at_least


# --- Gymnasium's own checks -----------------------------------------------------------------

UNBOUNDED = "ignore:.*A Box observation space m..imum value is:UserWarning"


@pytest.mark.filterwarnings(UNBOUNDED)
@pytest.mark.parametrize(
    "kwargs",
    [{}, {"reward": "dense"}, pytest.param({"render_mode": "rgb_array"}, marks=needs_gl)],
    ids=str,
)
def test_gymnasiums_checks_pass(make, kwargs):
    env = make(tool="claw", object="round_nail", **kwargs)
    check_env(env, skip_render_check="render_mode" not in kwargs)


# --- Outcomes and rewards -------------------------------------------------------------------


def test_success_terminates_and_no_step_follows(hammer):
    hammer.reset(seed=0)
    results = drive(hammer)
    _, reward, terminated, truncated, info = results[-1]
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["outcome"] == "success" and info["progress"] == 1.0
    assert info["success"] is info["is_success"] is info["success_once"] is True
    assert hammer.world_state().object_joints["slide"] >= required_displacement(hammer)
    for _, reward, terminated, truncated, info in results[:-1]:
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert (info["outcome"], info["success"]) == ("running", False)
    before = hammer.state_digest()
    with pytest.raises(EpisodeOverError, match=r"ended as 'success'; call reset\(\)"):
        hammer.step(STILL)
    assert hammer.state_digest() == before
    hammer.reset(seed=0)
    assert hammer.step(STILL)[4]["outcome"] == "running"


def test_there_is_no_episode_before_the_first_reset():
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


def failed(env: ToolUseEnv) -> tuple:
    """Returns the result of a step in which the solver fails."""
    env.reset(seed=0)
    env.set_state(with_velocity(env, 1e10))
    return env.step(STILL)


def test_a_failed_solver_has_its_own_outcome(hammer):
    observation, reward, terminated, truncated, info = failed(hammer)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert (info["outcome"], info["success"]) == ("simulation_error", False)
    assert "step 1" in info["error"]
    assert hammer.observation_space.contains(observation)
    assert all(np.isfinite(value).all() for value in observation.values())
    with pytest.raises(EpisodeOverError, match="ended as 'simulation_error'"):
        hammer.step(STILL)
    with contextlib.suppress(FleetToolsError):  # never an error of Drake
        hammer.set_state(hammer.get_state())
    hammer.reset(seed=0)
    assert hammer.step(STILL)[4]["outcome"] == "running"


def test_a_reset_after_a_failed_solver_starts_anew(hammer):
    traces = []
    for _ in range(2):
        hammer.reset(seed=1)
        observations = [hammer.step(press(hammer))[0] for _ in range(5)]
        traces.append((bits([observations]), hammer.state_digest()))
        failed(hammer)
    assert traces[0] == traces[1]


@pytest.mark.parametrize("velocity", [1e200, np.nan, np.inf])
def test_an_impossible_state_is_refused(hammer, velocity):
    hammer.reset(seed=0)
    with pytest.raises(SimulationError):
        hammer.set_state(with_velocity(hammer, velocity))
    hammer.reset(seed=0)
    assert hammer.step(STILL)[4]["outcome"] == "running"


# --- Arguments and options ------------------------------------------------------------------


@pytest.mark.parametrize(
    "kwargs, message",
    [
        ({"obs_mode": "stat"}, "obs_mode: 'stat'. Did you mean 'state'"),
        ({"reward": "dens"}, "reward: 'dens'. Did you mean 'dense'"),
        ({"render_mode": "rgb"}, "render_mode: 'rgb'"),
        ({"robot_visuals": "frank"}, "robot_visuals: 'frank'. Did you mean 'franka'"),
        ({"tool": "clow"}, "'clow'. Did you mean 'claw'"),
        ({"object": "round_nial"}, "'round_nial'. Did you mean 'round_nail'"),
        ({"task": "hamer"}, "task: 'hamer'. Did you mean 'hammer'"),
        ({"randomization": {"object_pos": False}}, "Did you mean 'object_pose'"),
        ({"randomization": "onn"}, "randomization to be 'on', 'off' or a mapping"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*render.mode.*:UserWarning")
def test_an_invalid_argument_is_refused_with_the_nearest_also_through_gymnasium(kwargs, message):
    with pytest.raises((UnknownNameError, ConfigError), match=message):
        gymnasium.make(ID, **kwargs)


@pytest.mark.parametrize("name", inspect.signature(ToolUseEnv).parameters)
def test_anything_else_is_refused_by_a_short_message(name):
    for given in ([], [[]], {"a": []}, 1.5, np.zeros(3), b"x", "x" * 10**6, 10**5000, Path):
        kwargs: dict[str, Any] = {"task": "hammer", name: given}
        with pytest.raises((ConfigError, UnknownNameError)) as error:
            ToolUseEnv(**kwargs)
        assert len(str(error.value)) < 1000


def changed(env: ToolUseEnv, **changes: Any) -> dict[str, Any]:
    return json.loads(env.scene.to_json()) | changes


@pytest.mark.parametrize(
    "options, message",
    [
        (lambda env: {"scne": 1}, "option of reset: 'scne'. Did you mean 'scene'"),
        (lambda env: {"scene": changed(env, task="wrench")}, "task 'wrench'"),
        (lambda env: {"scene": changed(env, tool="clow")}, "Did you mean 'claw'"),
        (lambda env: {"scene": changed(env, tol="claw")}, "Did you mean 'tool'"),
        (lambda env: {"scene": changed(env, tool_mass_scale=-1)}, "tool_mass_scale"),
        (lambda env: {"scene": changed(env, joint_resistance={"slid": 30.0})}, "slid"),
        (lambda env: {"scene": changed(env, cameras={})}, "places the cameras"),
        (lambda env: {"scene": "0"}, "valid dictionary"),
    ],
)
def test_invalid_options_are_refused_and_nothing_changes(hammer, options, message):
    hammer.reset(seed=0)
    hammer.step(STILL)
    before, scene = hammer.state_digest(), hammer.scene
    generator = hammer.np_random.bit_generator.state
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        hammer.reset(seed=5, options=options(hammer))
    assert hammer.state_digest() == before
    assert hammer.scene == scene
    assert hammer.np_random.bit_generator.state == generator
    assert hammer.step(STILL)[4]["outcome"] == "running"


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


def test_a_branch_keeps_outcome_and_success_once(hammer):
    hammer.reset(seed=0)
    drive(hammer)
    over = hammer.get_state()
    hammer.reset(seed=1)
    hammer.set_state(over)
    assert hammer.get_state().success_once
    with pytest.raises(EpisodeOverError, match="ended as 'success'"):
        hammer.step(STILL)


def test_a_state_of_another_task_is_refused(hammer):
    hammer.reset(seed=0)
    state = hammer.get_state()
    other = replace(state, scene=state.scene.model_copy(update={"task": "wrench"}))
    with pytest.raises(ConfigError, match="'wrench'"):
        hammer.set_state(other)
