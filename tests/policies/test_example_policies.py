"""Policies in `examples/`, run from a copy of their folder, as their pages describe."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.transform import Rotation
from support.processes import ROOT

from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.utils.statistics import wilson_interval


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.replace("/", "_"), ROOT / "examples" / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(folder: Path, *arguments: str) -> str:
    """Runs `python -m ...` in a folder that holds nothing of the checkout."""
    finished = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def total(folder: Path, policy: str, scenes: int) -> dict[str, Any]:
    """Evaluates a policy in some scenes of each split of the hammer; returns its total score."""
    options = ["--tool", "hammer", "--scenes", str(scenes), "--workers", "0"]
    output = ["--output", str(folder / "result"), "--json", "--quiet"]
    summary = json.loads(run(folder, "fleet_tools.evaluate", "--policy", policy, *options, *output))
    return summary["scores"]["total"]


# --- A policy outside the package -----------------------------------------------------------

SERVO = load("outside_policy/servo.py")
POINTS_M = arrays(float, (5, 3), elements=st.floats(-0.5, 0.5))
TURNS = arrays(float, 3, elements=st.floats(-3.0, 3.0)).map(Rotation.from_rotvec)


def motion(env: ToolUseEnv, points_m: np.ndarray) -> np.ndarray:
    """Returns the servo's first motion, (6,), m and rad, up to a positive factor."""
    servo = SERVO.make_policy(env)
    servo.reset()
    action = servo.act({"tool_keypoints": points_m[:3], "object_keypoints": points_m[3:]})
    assert action.shape == (6,) and action.dtype == np.float32 and np.abs(action).max() <= 1.0
    return action * env.action_scale


@given(POINTS_M, TURNS)
def test_the_servo_uses_no_directions_but_those_of_the_keypoints(
    hammer: ToolUseEnv, points_m: np.ndarray, turn: Rotation
) -> None:
    face, drive = points_m[0] - points_m[1], points_m[4] - points_m[3]
    lengths = np.linalg.norm(face), np.linalg.norm(drive)
    if min(lengths) < 1e-3 or face @ drive < -0.99 * np.prod(lengths):
        return  # no direction, or opposite ones: then all turns are equally short
    expected = turn.apply(motion(hammer, points_m).reshape(2, 3))
    found = motion(hammer, turn.apply(points_m)).reshape(2, 3)
    np.testing.assert_allclose(
        found * np.linalg.norm(expected), expected * np.linalg.norm(found), atol=1e-4
    )


def test_the_servo_hammers(hammer: ToolUseEnv) -> None:
    for seed in range(2):
        assert rollout(hammer, SERVO.make_policy(hammer), seed=seed).outcome == "success"


@pytest.mark.slow
def test_the_servo_is_evaluated_as_any_policy(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples/outside_policy/servo.py", tmp_path)
    success = total(tmp_path, "servo:make_policy", scenes=10)["success"]
    assert success["trials"] == 40
    assert wilson_interval(success["successes"], success["trials"])[0] > 0.8


# --- Reinforcement learning -----------------------------------------------------------------


@pytest.fixture(name="sac", scope="module")
def _sac() -> ModuleType:
    pytest.importorskip("stable_baselines3")
    return load("reinforcement_learning/sac.py")


def test_the_reward_of_success_is_that_of_infinitely_many_steps(
    sac: ModuleType, hammer: ToolUseEnv
) -> None:
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


def test_a_stored_agent_acts(
    sac: ModuleType, hammer: ToolUseEnv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sac, "AGENT", tmp_path / "agent.zip")
    sac.learn(steps=2, seed=0).save(sac.AGENT)
    agent = sac.make_policy(hammer)
    observation, _ = hammer.reset(seed=0)
    agent.reset()
    action = agent.act(observation)
    assert hammer.action_space.contains(action)
    np.testing.assert_array_equal(action, agent.act(observation))


@pytest.mark.slow
def test_an_agent_learns_to_hammer(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    shutil.copy(ROOT / "examples/reinforcement_learning/sac.py", tmp_path)
    printed = run(tmp_path, "sac", "--steps", "6000", "--scenes", "20")
    intervals = re.findall(r"agent's return less (\w+)'s: 95% interval (\S+) to", printed)
    assert [name for name, _ in intervals] == ["random", "zero"]
    assert all(float(low) > 0.0 for _, low in intervals), printed
    assert total(tmp_path, "sac:make_policy", scenes=2)["policy_errors"] == 0
