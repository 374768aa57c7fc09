"""Policies and the link in `examples/`, run from a copy of their folder."""

import importlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.transform import Rotation
from scipy.stats import ttest_1samp
from support.processes import ROOT, run_command, run_python

from fleet_tools.envs.recorded_env import interface_of
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
    path = os.pathsep.join([str(ROOT), *sys.path])
    finished = run_command(sys.executable, "-m", *arguments, cwd=folder, PYTHONPATH=path)
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
def test_the_servo_uses_no_directions_but_those_of_the_keypoints(hammer, points_m, turn):
    face, drive = points_m[0] - points_m[1], points_m[4] - points_m[3]
    lengths = np.linalg.norm(face), np.linalg.norm(drive)
    if min(lengths) < 1e-3 or face @ drive < -0.99 * np.prod(lengths):
        return  # no direction, or opposite ones: then all turns are equally short
    expected = turn.apply(motion(hammer, points_m).reshape(2, 3))
    found = motion(hammer, turn.apply(points_m)).reshape(2, 3)
    np.testing.assert_allclose(
        found * np.linalg.norm(expected), expected * np.linalg.norm(found), atol=1e-4
    )


def test_the_servo_hammers(hammer):
    for seed in range(2):
        assert rollout(hammer, SERVO.make_policy(hammer), seed=seed).outcome == "success"


@pytest.mark.slow
def test_the_servo_is_evaluated_as_any_policy(tmp_path):
    shutil.copy(ROOT / "examples/outside_policy/servo.py", tmp_path)
    success = total(tmp_path, "servo:make_policy", scenes=10)["success"]
    assert success["trials"] == 40
    assert wilson_interval(success["successes"], success["trials"])[0] > 0.8


# --- Outputs --------------------------------------------------------------------------------


def test_examples_write_nothing_that_git_keeps(tmp_path):
    """By default; else a first try would change the checkout."""
    code = """
import json
from examples.delayed_robot.robot import RobotOptions
from examples.reinforcement_learning import sac
folders = [sac.AGENTS, sac.CURVES, sac.FIGURE, RobotOptions.model_fields["output"].default]
print(json.dumps([str(folder) for folder in folders]))
"""
    paths = run_python(code, PYTHONPATH=str(ROOT))
    assert run_command("git", "check-ignore", *paths).stdout.split() == paths


# --- Reinforcement learning -----------------------------------------------------------------


@pytest.fixture(name="sac", scope="module")
def _sac() -> Iterator[ModuleType]:
    pytest.importorskip("stable_baselines3")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
        yield importlib.import_module("examples.reinforcement_learning.sac")


@pytest.fixture(name="learned", scope="module")
def _learned(sac: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The example, with an agent and a curve of a few steps in a folder of their own."""
    folder = tmp_path_factory.mktemp("learned")
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, file in (("AGENTS", "agents"), ("CURVES", "curves"), ("FIGURE", "curves.png")):
            monkeypatch.setattr(sac, name, folder / file)
        few = ["--steps", "1", "--scenes", "1", "--quiet"]
        assert sac.main(["learn", "--tool", "hammer", *few]) == 0
        yield sac


def test_a_curve_has_its_points_and_references(learned):
    curve = json.loads((learned.CURVES / "hammer.json").read_text())
    assert [point["steps"] for point in curve["points"]] == [0, 1]
    assert curve["references"].keys() == {"expert", "zero", "random"}
    assert curve["references"]["expert"]["successes"] == 1
    assert min(curve["references"]["expert"]["returns"]) > 1.0
    assert np.abs(curve["references"]["zero"]["returns"]).max() < 0.01


def test_an_agent_is_evaluated_at_start_and_end_and_between(sac, make):
    env = make("FleetTools/Hammer-v0", reward="dense", tool="claw", object="round_nail")
    assert [steps for steps, _ in sac.learn(env, steps=5, every=2, seed=0)] == [0, 2, 4, 5]


def test_curves_are_drawn_where_there_are_any(learned, capsys, tmp_path, monkeypatch):
    assert learned.main(["draw"]) == 0
    assert learned.FIGURE.read_bytes().startswith(b"\x89PNG")
    assert "expert: return" in capsys.readouterr().out
    monkeypatch.setattr(learned, "CURVES", tmp_path)
    assert learned.main(["draw"]) == 2


def test_a_stored_agent_acts(learned, hammer):
    agent = learned.make_policy(hammer)
    observation, _ = hammer.reset(seed=0)
    agent.reset()
    action = agent.act(observation)
    assert hammer.action_space.contains(action)
    np.testing.assert_array_equal(action, agent.act(observation))
    without_environment = learned.make_policy(interface_of(hammer))  # as `evaluate` makes it
    np.testing.assert_array_equal(action, without_environment.act(observation))


@pytest.mark.slow
def test_an_agent_learns_to_hammer(tmp_path):
    pytest.importorskip("stable_baselines3")
    name = "examples/reinforcement_learning"
    shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("agents", "curves"))
    program = "examples.reinforcement_learning.sac"
    options = ["--steps", "4000", "--every", "4000", "--scenes", "10", "--json"]
    curve = json.loads(run(tmp_path, program, "learn", "--tool", "hammer", *options))
    learned = curve["points"][-1]["measured"]["returns"]
    for name in ("zero", "random"):
        gained = np.subtract(learned, curve["references"][name]["returns"])
        assert ttest_1samp(gained, 0.0).confidence_interval(0.95).low > 0.0
    assert total(tmp_path, f"{program}:make_policy", scenes=2)["policy_errors"] == 0


# --- A delayed robot --------------------------------------------------------------------------

LINK = load("delayed_robot/link.py")
Link = LINK.Link
STEPS = 30


class Naming:
    """Returns the number that it observes; notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def reset(self) -> None:
        self.asked.clear()

    def act(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        self.asked.append(int(observation["step"]))
        return np.full(6, 1 + self.asked[-1], np.float32)


def executed(link: Any, seed: int = 0) -> list[int | None]:
    """Returns for each step the step of the observation that it acts on; None for zero actions."""
    policy = LINK.DelayedPolicy(Naming(), link, np.random.default_rng(seed))
    policy.reset()
    actions = [policy.act({"step": np.array(step)}) for step in range(STEPS)]
    return [int(action[0]) - 1 if action.any() else None for action in actions]


LINKS = st.builds(
    Link, st.integers(0, 5), st.integers(0, 4), st.sampled_from([0.0, 0.3, 0.9]), st.booleans()
)


@given(LINKS, st.integers(0, 1000))
def test_actions_are_late_enough_and_never_out_of_order(link, seed):
    found = executed(link, seed)
    acted = [(step, sent) for step, sent in enumerate(found) if sent is not None]
    assert [sent for _, sent in acted] == sorted({sent for _, sent in acted})
    late = [step - sent for step, sent in acted]
    assert all(link.delay_steps <= each <= link.delay_steps + link.jitter_steps for each in late)
    assert executed(link, seed) == found


@pytest.mark.parametrize("delay", range(4))
def test_a_steady_link_shifts_every_action(delay):
    assert executed(Link(delay)) == [None] * delay + list(range(STEPS - delay))


def test_a_robot_that_waits_sees_the_outcome_before_it_asks_again():
    assert executed(Link(2, waits=True))[:9] == [None, None, 0, None, None, 3, None, None, 6]


def test_lost_messages_are_zero_actions():
    assert executed(Link(loss=1.0)) == [None] * STEPS
    lost = executed(Link(loss=0.5)).count(None)
    assert 0 < lost < STEPS
