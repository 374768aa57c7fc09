"""An object that leaves the workspace ends the episode, as a failure of the policy."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from support.processes import run_program
from support.task_files import own_task

from fleet_tools.config.geometry import TABLE_LOWER_M, TABLE_UPPER_M, Workspace
from fleet_tools.config.tasks import task_names
from fleet_tools.envs.episode_state import EnvState
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import ConfigError, EpisodeOverError
from fleet_tools.rollouts.rollout import rollout

STAY = np.zeros(6, np.float32)
Q, P, W, V = 7, 11, 21, 24  # places of the patty's pose and velocities in the state
BLOCKS = (11, 18)  # places of the positions of both blocks of a pair


@pytest.fixture(scope="module", name="env")
def _env(make) -> ToolUseEnv:
    return make("FleetTools/Spatula-v0", tool="turner", object="patty")


@pytest.fixture(scope="module", name="knife")
def _knife(make) -> ToolUseEnv:
    return make("FleetTools/Knife-v0", tool="chef", object="soap")


def moved(env: ToolUseEnv, changes: dict[int, list[float]]) -> EnvState:
    """Returns the state with other entries, given by the first place of each group."""
    state = env.get_state()
    x = state.snapshot.x.copy()
    for place, values in changes.items():
        x[place : place + len(values)] = values
    return replace(state, snapshot=replace(state.snapshot, x=x))


def assert_lost(env: ToolUseEnv, result: tuple) -> None:
    observation, reward, terminated, truncated, info = result
    assert (terminated, truncated, info["outcome"]) == (True, False, "object_lost")
    assert (info["success"], info["progress"], "error" in info) == (False, 0.0, False)
    assert reward <= 0.0  # dense rewards lose the potential
    assert env.observation_space.contains(observation)
    assert all(np.isfinite(value).all() for value in observation.values())
    with pytest.raises(EpisodeOverError, match="ended as 'object_lost'"):
        env.step(STAY)


@pytest.mark.parametrize(
    "changes",
    [
        {P: [0.5, 0.9, -0.05], V: [0.0, 0.0, -1.0]},
        {P: [0.5, 0.0, 1.95], V: [0.0, 0.0, 5.0]},
        {P: [1.45, 0.0, 0.5], V: [1.0, 0.0, 0.0]},
        {P: [0.0, -1.45, 0.5], V: [0.0, -1.0, 0.0]},
        {V: [0.0, 0.0, 1e3]},
        {V: [0.0, 0.0, 1e8]},
        {V: [1e12, 0.0, 1e12]},
        {V: [1e30, 0.0, 1e30]},
    ],
    ids=["below", "above", "beyond", "beside", "1e3 m/s", "1e8 m/s", "1e12 m/s", "1e30 m/s"],
)
def test_an_object_that_leaves_is_lost(env: ToolUseEnv, changes: dict):
    env.reset(seed=0)
    env.set_state(moved(env, changes))
    assert_lost(env, env.step(STAY))


def test_one_lost_block_is_enough(knife: ToolUseEnv):
    for place in BLOCKS:
        knife.reset(seed=0)
        knife.set_state(moved(knife, {place: [0.5, 1.0, -0.2]}))
        assert_lost(knife, knife.step(STAY))


CORNERS = [*itertools.product(*zip(TABLE_LOWER_M, TABLE_UPPER_M, strict=True))]


@pytest.mark.parametrize("corner", CORNERS, ids=str)
def test_an_object_is_lost_where_the_table_ends(env: ToolUseEnv, corner: tuple[float, float]):
    middle = np.add(TABLE_LOWER_M, TABLE_UPPER_M) / 2
    inwards = 2e-3 * np.sign(middle - corner)
    for axis in (0, 1):
        for side, outcome in ((1, "running"), (-1, "object_lost")):
            place = corner + inwards
            place[axis] = corner[axis] + side * inwards[axis]
            env.reset(seed=0)
            env.set_state(moved(env, {P: [*place, 0.0]}))
            assert env.step(STAY)[4]["outcome"] == outcome


def test_a_workspace_beyond_the_table_is_refused(tmp_path):
    file = own_task(tmp_path, "spatula", workspace={"upper_m": [1.5, 0.8, 0.3]})
    with pytest.raises(ConfigError, match=r"not reach beyond the table, which ends at .*\(1\.0"):
        EnvSpec.of(task=file).make_tool_use()


def test_a_lost_object_is_no_success_whatever_the_predicates_say(env: ToolUseEnv, tmp_path):
    """Raised far above the table, with predicates that ask for nothing else."""
    raising = {"type": "keypoint_raised", "object": "base", "at_least_m": 0.05}
    file = own_task(tmp_path, "spatula", success=[raising], success_duration_s=0)
    raised = EnvSpec.of(task=file, reward="dense", tool="turner", object="patty").make_tool_use()
    raised.reset(seed=0)
    raised.set_state(moved(raised, {P: [0.5, 0.0, 1.95], V: [0.0, 0.0, 10.0]}))
    assert_lost(raised, raised.step(STAY))
    assert not raised.get_state().success_once


def test_the_task_file_may_set_the_workspace(tmp_path):
    file = own_task(tmp_path, "spatula", workspace={"upper_m": [1.0, 0.8, 0.3]})
    env = EnvSpec.of(task=file, tool="turner", object="patty").make_tool_use()
    assert env.task.workspace == Workspace(upper_m=(1.0, 0.8, 0.3))
    env.reset(seed=0)
    env.set_state(moved(env, {P: [0.5, 0.0, 1.0]}))
    assert_lost(env, env.step(STAY))


def test_a_scene_that_begins_outside_is_refused(tmp_path):
    env = EnvSpec.of(
        task=own_task(tmp_path, "spatula", workspace={"upper_m": [1.0, 0.8, -0.01]})
    ).make_tool_use()
    with pytest.raises(ConfigError, match=r"outside the workspace.*slab.*`workspace`"):
        env.reset(seed=0)
    with pytest.raises(EpisodeOverError):
        env.step(STAY)


class Thrower:
    """Puts the object below the table in its second step."""

    def __init__(self, env: ToolUseEnv) -> None:
        self._env = env

    def reset(self) -> None:
        self._steps = 0

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        self._steps += 1
        if self._steps == 2:
            self._env.set_state(moved(self._env, {P: [0.5, 0.9, -0.3]}))
        return STAY


def test_a_rollout_ends_there(env: ToolUseEnv):
    episode = rollout(env, Thrower(env), seed=0)
    assert (episode.outcome, len(episode), episode.error) == ("object_lost", 2, None)
    assert episode.terminated.tolist() == [False, True] and not episode.truncated.any()
    assert not episode.success.any()


@pytest.fixture(scope="module", name="tossed")
def _tossed(make) -> Callable[[float], ToolUseEnv]:
    """A function that tosses a patty, which spins at a speed, rad/s."""

    def toss(speed: float) -> ToolUseEnv:
        env = make("FleetTools/Spatula-v0", split="all", tool="cake_server", object="patty")
        env.reset(seed=8)
        pose = {Q: [1.0, 0.0, 0.0, 0.0], P: [0.5, 0.75, 1.0]}
        velocity = {W: [0.6 * speed, 0.0, 0.8 * speed], V: [0.0, 0.0, 1.0]}
        env.set_state(moved(env, pose | velocity))
        return env

    return toss


@pytest.mark.parametrize("speed", [100.0, 300.0])
def test_a_spinning_patty_lands_on_the_table(tossed: Callable[[float], ToolUseEnv], speed: float):
    env = tossed(speed)
    for _ in range(30):
        assert env.step(STAY)[4]["outcome"] == "running"
        assert np.linalg.norm(env.get_state().snapshot.x[W : W + 3]) < speed
    assert env.world_state().in_contact("object", "table")
    assert np.linalg.norm(env.get_state().snapshot.x[W : V + 3]) < 1e-3


def test_without_the_correction_it_would_be_lost_at_once(tossed: Callable[[float], ToolUseEnv]):
    """The step of Drake alone takes the patty of 200 rad/s 1e17 m away within 1/6 s."""
    env = tossed(200.0)
    simulation = env.simulation
    assert simulation.world.adjustable.gyroscopic is not None
    own = simulation.world.adjustable.gyroscopic.GetMyMutableContextFromRoot(simulation._root)
    inertias = own.get_mutable_numeric_parameter(0)
    inertias.SetFromVector(np.zeros(inertias.size()))
    assert_lost(env, env.step(STAY))
    assert np.abs(env.get_state().snapshot.x).max() > 1e6


@pytest.mark.slow
def test_random_and_extreme_actions_cause_no_simulation_error_and_keep_the_joint_limits():
    options = ["--episodes", "8", "--workers", "0", "--json"]
    measured = run_program("benchmarks/random_actions.py", *options)
    assert measured["errors"] == []
    assert sum(row["episodes"] for row in measured["rows"]) == 8 * len(task_names())
    for peaks in (row["peaks"] for row in measured["rows"]):
        assert peaks["speed_untouched"] < 0.95
        assert peaks["speed"] < 1.2  # in an impact
        assert peaks["torque"] <= 1.0
        assert peaks["beyond_range_rad"] < 1e-3
