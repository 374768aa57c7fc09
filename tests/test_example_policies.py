"""Policies in `examples/`: run for real, from a copy of their folder, as their pages say."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.transform import Rotation

from fleet_tools.rollouts.episode import rollout
from fleet_tools.utils.statistics import wilson_interval


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.replace("/", "_"), ROOT / "examples" / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(folder, *arguments: str) -> str:
    """Runs `python -m ...` in a folder from which only the installed package can be seen."""
    finished = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def total(folder, policy: str, episodes: int) -> dict:
    """Scores a policy in so many scenes of each split of the hammer."""
    asked = ["--tool", "hammer", "--episodes", str(episodes), "--workers", "0"]
    output = ["--output", str(folder / "result"), "--json", "--quiet"]
    summary = json.loads(run(folder, "fleet_tools.evaluate", "--policy", policy, *asked, *output))
    return summary["scores"]["total"]


# --- From outside ---------------------------------------------------------------------------

SERVO = load("outside_policy/servo.py")
POINTS_M = arrays(float, (5, 3), elements=st.floats(-0.5, 0.5))
TURNS = arrays(float, 3, elements=st.floats(-3.0, 3.0)).map(Rotation.from_rotvec)


def motion(env, points_m: np.ndarray) -> np.ndarray:
    """The servo's first motion, (6,), m and rad, up to a positive factor."""
    servo = SERVO.make_policy(env)
    servo.reset()
    sees = {"tool_keypoints": points_m[:3], "object_keypoints": points_m[3:]}
    action = servo.act(sees)
    assert action.shape == (6,) and action.dtype == np.float32 and np.abs(action).max() <= 1.0
    return action * env.action_scale


@given(POINTS_M, TURNS)
def test_the_servo_knows_no_directions_but_those_it_sees(hammer, points_m, turn):
    face, drive = points_m[0] - points_m[1], points_m[4] - points_m[3]
    lengths = np.linalg.norm(face), np.linalg.norm(drive)
    if min(lengths) < 1e-3 or face @ drive < -0.99 * np.prod(lengths):
        return  # no direction, or opposite ones: then every way to turn is as short
    here = motion(hammer, points_m).reshape(2, 3)
    there = motion(hammer, turn.apply(points_m)).reshape(2, 3)
    turned = turn.apply(here)
    np.testing.assert_allclose(
        there * np.linalg.norm(turned), turned * np.linalg.norm(there), atol=1e-4
    )


def test_the_servo_hammers(hammer):
    for seed in range(3):
        assert rollout(hammer, SERVO.make_policy(hammer), seed=seed).outcome == "success"


@pytest.mark.slow
def test_the_servo_is_scored_as_any_policy(tmp_path):
    shutil.copy(ROOT / "examples/outside_policy/servo.py", tmp_path)
    end = total(tmp_path, "servo:make_policy", episodes=10)["end"]
    assert end["trials"] == 40
    assert wilson_interval(end["successes"], end["trials"])[0] > 0.8


# --- Reinforcement learning -----------------------------------------------------------------


@pytest.fixture(name="sac", scope="module")
def _sac():
    pytest.importorskip("stable_baselines3")
    return load("reinforcement_learning/sac.py")


def test_success_is_worth_what_it_would_pay_forever(sac, hammer):
    policy = SERVO.make_policy(hammer)
    env = sac.SuccessLasts(hammer)
    observation, _ = env.reset(seed=0)
    policy.reset()
    terminated, rewards = False, []
    while not terminated:
        observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
        assert not truncated
        rewards.append(reward)
    assert max(rewards[:-1]) <= 1.0
    assert rewards[-1] == pytest.approx(sum(sac.DISCOUNT**step for step in range(1000)))


def test_a_stored_agent_acts(sac, hammer, tmp_path, monkeypatch):
    monkeypatch.setattr(sac, "AGENT", tmp_path / "agent.zip")
    sac.learn(steps=2, seed=0).save(sac.AGENT)
    agent = sac.make_policy(hammer)
    observation, _ = hammer.reset(seed=0)
    agent.reset()
    action = agent.act(observation)
    assert hammer.action_space.contains(action)
    np.testing.assert_array_equal(action, agent.act(observation))


@pytest.mark.slow
def test_an_agent_learns_to_hammer(tmp_path):
    pytest.importorskip("stable_baselines3")
    shutil.copy(ROOT / "examples/reinforcement_learning/sac.py", tmp_path)
    said = run(tmp_path, "sac", "--steps", "6000", "--scenes", "20")
    intervals = re.findall(r"agent's return less (\w+)'s: 95% interval (\S+) to", said)
    assert [name for name, _ in intervals] == ["random", "zero"]
    assert all(float(low) > 0.0 for _, low in intervals), said
    assert total(tmp_path, "sac:make_policy", episodes=2)["policy_errors"] == 0
