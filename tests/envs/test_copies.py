"""Copies of environments and of policies continue bit for bit, or are refused in words."""

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers
from support.collected import write_quick_task
from support.environments import bits, press, press_until_sliding, with_velocity
from support.processes import run_python
from support.shares import crossed
from support.task_files import own_task

from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv, unwrap
from fleet_tools.errors import ConfigError, EpisodeOverError
from fleet_tools.experts.demonstrators import DAggerPolicy, NoisyExpert
from fleet_tools.experts.perception.perceived import perceived_expert
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.policies.policy import Policy, RandomPolicy, StoredActions, ZeroPolicy
from fleet_tools.rollouts.episode import first_difference
from fleet_tools.rollouts.rollout import rollout


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


COPIES = [copy.copy, copy.deepcopy, pickled]


def future(env: gymnasium.Env, steps: int = 4) -> list[list[Any]]:
    """Returns the bits of what an environment does of its own random actions."""
    generator = np.random.default_rng(1)
    trace: list[tuple] = []
    for _ in range(steps):
        action = env.action_space.sample() * np.float32(generator.random())
        trace.append((*env.step(action), unwrap(env).state_digest()))
        if trace[-1][2] or trace[-1][3]:
            observation, info = env.reset()
            trace.append((observation, info, unwrap(env).scene.to_json()))
    return bits(trace)


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_continues_in_contact_and_into_the_next_episodes(hammer, copied):
    press_until_sliding(hammer, seed=4)
    hammer.action_space.seed(5)
    other = copied(hammer)
    assert other.simulation is not hammer.simulation
    assert other.verdicts() == hammer.verdicts()
    expected = future(hammer)
    assert future(other) == expected
    assert future(other) != expected  # it has gone on
    for env in (hammer, other):
        env.reset()
    assert other.scene == hammer.scene


def test_a_copy_of_a_copy_in_another_process_continues(hammer: ToolUseEnv, tmp_path: Path) -> None:
    press_until_sliding(hammer, seed=4)
    file = tmp_path / "env.pickle"
    file.write_bytes(pickle.dumps(copy.deepcopy(hammer)))
    program = (
        "import json, pickle, sys\n"
        "sys.path[:0] = sys.argv[2:4]\n"
        "from test_copies import future\n"
        "print(json.dumps(future(pickle.load(open(sys.argv[1], 'rb')))))"
    )
    here = Path(__file__).parent
    elsewhere = run_python(program, str(file), str(here), str(here.parent))
    assert elsewhere == json.loads(json.dumps(future(hammer)))


def test_the_original_goes_on_as_if_nobody_had_copied_it(hammer: ToolUseEnv) -> None:
    digests = []
    for copied in (lambda env: env, copy.deepcopy):
        hammer.reset(seed=2)
        hammer.step(press(hammer))
        copied(hammer)
        hammer.step(press(hammer))
        digests.append(hammer.state_digest())
    assert digests[0] == digests[1]


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_wrappers_are_copied_with_what_they_count(copied: Callable[[Any], Any]) -> None:
    env = wrappers.RecordEpisodeStatistics(
        gymnasium.make("FleetTools/Hammer-v0", max_episode_steps=4, reward="dense")
    )
    env.reset(seed=1)
    env.step(np.zeros(6, np.float32))
    other, results = copied(env), []
    assert other.spec == env.spec
    for each in (env, other):
        steps = [each.step(np.zeros(6, np.float32)) for _ in range(3)]
        _, reward, _, truncated, info = steps[-1]
        counted = info["episode"]["l"], info["episode"]["r"]
        results.append((truncated, info["outcome"], reward, counted))
        each.close()
    assert results[0] == results[1] and results[0][:2] == (True, "time_limit")


def test_before_the_first_episode_and_after_the_last_step_there_is_nothing_to_continue() -> None:
    env = EnvSpec.of(
        task="hammer", tool="claw", randomization={"object_pose": False}
    ).make_tool_use()
    with pytest.raises(EpisodeOverError, match="No episode"):
        pickled(env).step(np.zeros(6, np.float32))
    env.reset(seed=3)
    env.end_by_time_limit()
    other = pickled(env)
    with pytest.raises(EpisodeOverError, match="time_limit"):
        other.step(np.zeros(6, np.float32))
    for each in (env, other):
        each.reset()
    assert other.scene == env.scene


def test_no_copy_is_made_of_a_failed_simulation(hammer: ToolUseEnv) -> None:
    hammer.reset(seed=0)
    hammer.set_state(with_velocity(hammer, 1e10))
    hammer.step(np.zeros(6, np.float32))
    for copied in COPIES:
        with pytest.raises(EpisodeOverError, match="simulation_error"):
            copied(hammer)
    hammer.reset(seed=0)
    copy.deepcopy(hammer)


def test_a_task_file_that_has_changed_is_not_continued_silently(tmp_path: Path) -> None:
    env = EnvSpec.of(task=own_task(tmp_path, "hammer")).make_tool_use()
    env.reset(seed=1)
    content = pickle.dumps(env)
    assert pickle.loads(content).state_digest() == env.state_digest()
    own_task(tmp_path, "hammer", success_duration_s=0.8)
    with pytest.raises(ConfigError, match="has changed"):
        pickle.loads(content)


def test_copies_have_held_success_as_long(tmp_path: Path) -> None:
    task = write_quick_task(tmp_path, success_duration_s=0.8)
    env = EnvSpec.of(task=str(task), tool="claw", object="round_nail").make_tool_use()
    env.reset(seed=0)
    for _ in range(3):
        assert env.step(np.zeros(6, np.float32))[2] is False
    for each in (copy.deepcopy(env), pickled(env), env):
        ends = [each.step(np.zeros(6, np.float32))[2] for _ in range(2)]
        assert ends == [False, True]


def learner(env: gymnasium.Env) -> Policy:
    return DAggerPolicy(env, RandomPolicy(env, 3))


def stored(env: gymnasium.Env) -> Policy:
    return StoredActions(np.random.default_rng(2).uniform(-1, 1, (40, 6)), env)


@pytest.mark.parametrize(
    ("policy", "copied"),
    crossed(
        [ExpertPolicy, NoisyExpert, learner, stored, RandomPolicy, ZeroPolicy, perceived_expert],
        [copy.deepcopy, pickled],
        every=2,
    ),
)
def test_a_policy_is_copied_with_its_environment_in_the_middle_of_an_episode(make, policy, copied):
    clouds = {"obs_mode": "point_cloud"} if policy is perceived_expert else {}
    env = gymnasium.Wrapper(make(tool="claw", object="round_nail", **clouds))
    observation, _ = env.reset(seed=3)
    acting = policy(env)
    acting.reset()
    for _ in range(6):
        observation, *_ = env.step(acting.act(observation))
    traces = []
    for each_env, each in ((env, acting), copied((env, acting))):
        now, trace = observation, []
        for _ in range(5):
            action = each.act(now)
            now, *rest = each_env.step(action)
            trace.append((action, now, *rest, unwrap(each_env).state_digest()))
            if rest[1] or rest[2]:
                break
        facts = dict(getattr(each, "info", {}))
        traces.append((bits(trace), facts))
    assert traces[0] == traces[1]


def test_values_are_copied_as_they_are(hammer: ToolUseEnv) -> None:
    episode = rollout(hammer, stored(hammer), seed=2)
    spec = EnvSpec.of("hammer", tool="claw")
    for copied in COPIES:
        assert copied(episode.scene) == episode.scene
        assert copied(spec) == spec
        assert first_difference(copied(episode), episode) is None
        assert copied(episode).info == episode.info
