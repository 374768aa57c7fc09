"""The arm keeps its joint limits whatever the actions are."""

import json
import subprocess
import sys

import numpy as np
import pytest
from support.processes import ROOT

from fleet_tools.config.tasks import task_names
from fleet_tools.envs.tool_use_env import ToolUseEnv


@pytest.mark.slow
@pytest.mark.parametrize("task", task_names())
def test_random_and_extreme_actions_keep_the_joint_limits(task: str):
    command = [sys.executable, ROOT / "benchmarks" / "limits.py", "--task", task, "--json"]
    finished = subprocess.run(
        [*command, "--episodes", "3"], cwd=ROOT, capture_output=True, text=True, timeout=1200
    )
    assert finished.returncode == 0, finished.stderr
    for row in json.loads(finished.stdout)["rows"]:
        print(row)  # shown by pytest -rP
        assert row["speed_peak_untouched"] < 0.95 and row["speed_p99"] < 0.95
        assert row["speed_peak"] < 1.2  # in an impact
        assert row["torque_peak"] <= 1.0
        assert row["beyond_range_rad"] < 1e-3


def test_info_tells_how_limits_slowed_the_arm(make):
    env: ToolUseEnv = make()
    _, info = env.reset(seed=0)
    assert info["limits"]["motion_scale"] == 1.0
    assert not any(info["limits"][f"{kind}_s"].any() for kind in ("position", "velocity", "torque"))
    *_, info = env.step(np.zeros(6, np.float32))
    assert info["limits"]["motion_scale"] == 1.0
    turn = np.array([0, 0, 0, 0, 0, 1.0], np.float32)  # joint 7 reaches the end of its range
    for _ in range(12):
        *_, info = env.step(turn)
    assert info["limits"]["motion_scale"] < 0.1
    assert info["limits"]["position_s"][6] > 0.0
    assert info["limits"]["position_s"].sum() <= 1 / 6 + 0.004


def test_a_state_that_is_restored_tells_the_same(make):
    env: ToolUseEnv = make()
    env.reset(seed=0)
    actions = np.random.default_rng(0).choice([-1.0, 1.0], (6, 6)).astype(np.float32)
    for action in actions[:5]:
        env.step(action)
    state, told = env.get_state(), env.world_state().limits()
    *_, info = env.step(actions[5])
    env.set_state(state)
    np.testing.assert_equal(env.world_state().limits(), told)
    *_, again = env.step(actions[5])
    np.testing.assert_equal(again["limits"], info["limits"])
