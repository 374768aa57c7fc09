"""What several tests need: environments built once, another process, a hand that presses nails."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import gymnasium
import hypothesis
import numpy as np
import pytest
from collected import options
from pydrake.common.eigen_geometry import AngleAxis
from pydrake.math import RigidTransform, RotationMatrix

import fleet_tools
from fleet_tools.errors import MissingLibraryError
from fleet_tools.registration import CUSTOM_ID
from fleet_tools.robot.pose_delta import displacement

# The same examples everywhere, so that a green suite stays green.
hypothesis.settings.register_profile("fleet_tools", deadline=None, derandomize=True)
hypothesis.settings.load_profile("fleet_tools")

ROOT = Path(fleet_tools.__file__).resolve().parents[1]

IDS = sorted({name for name in gymnasium.registry if name.startswith("FleetTools/")} - {CUSTOM_ID})
"""The environments of the package's own tasks."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Pictures of one environment are enough for every day; the slow tests look at all."""
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        pictures = (parameters.get("keywords") or {}).get("obs_mode") == "rgbd"
        if pictures and parameters.get("environment_id") != IDS[0]:
            item.add_marker(pytest.mark.slow)


def run_python(code: str, *arguments: str):
    """Runs code in a process of its own, and returns the JSON that it prints in its last line."""
    command = [sys.executable, "-c", code, *arguments]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


def press(env, goal_m=(0.0, 0.0, -0.01)) -> np.ndarray:
    """The action that turns the hammer upright and brings its head to the nail's, plus `goal_m`."""
    state = env.world_state()
    head, nail = state.p_W_tool["head"], state.p_W_object["head"]
    axis = head - state.p_W_tool["side"]
    turn = np.cross(axis, [0.0, 0.0, -1.0])
    sine = np.linalg.norm(turn)
    R = RotationMatrix(AngleAxis(np.arctan2(sine, -axis[2]), turn / sine)) if sine else None
    R_WD = R @ state.X_WE.rotation() if R else state.X_WE.rotation()
    p_EHead = state.X_WE.inverse() @ head
    near = np.linalg.norm((head - nail)[:2]) < 0.004
    target = nail + (goal_m if near else [0.0, 0.0, 0.03])
    X_WD = RigidTransform(R_WD, target - R_WD @ p_EHead)
    action = displacement(state.X_WE, X_WD) / env.action_scale
    return np.float32(action / max(1.0, np.abs(action).max()))


def press_until_sliding(env, **reset) -> None:
    """Begins an episode and stops where the hammer is pushing the nail into its block."""
    env.reset(**reset)
    for _ in range(40):
        env.step(press(env))
        state = env.world_state()
        if state.F_E[5] < -5.0 and state.object_joints["slide"] > 0.001:
            return
    raise AssertionError("the hammer never reached the nail")


def drive(env, steps=60):
    """Presses until the episode ends; returns what each step returned."""
    results = []
    for _ in range(steps):
        results.append(env.step(press(env.unwrapped)))
        if results[-1][2] or results[-1][3]:
            break
    return results


def same(first: dict, second: dict) -> bool:
    """Whether two observations are the same bit for bit."""
    return first.keys() == second.keys() and all(
        first[key].tobytes() == second[key].tobytes() for key in first
    )


def has_gl() -> bool:
    from fleet_tools.perception.opengl import require_driver

    try:
        require_driver()
    except MissingLibraryError:
        return False
    return True


needs_gl = pytest.mark.skipif(not has_gl(), reason="this system has no libEGL or libGL")


@pytest.fixture(scope="session", name="uninterrupted")
def _uninterrupted(tmp_path_factory):
    """A data set that the program collected at one go, without workers."""
    from fleet_tools import collect

    folder = tmp_path_factory.mktemp("uninterrupted") / "hammer"
    assert collect.main(options(folder, "--quiet")) == 0
    return folder


@pytest.fixture(scope="session", name="collected")
def _collected(tmp_path_factory):
    """Data sets to export, by the mode of their observations, each made once."""
    from exported import write_collected

    return functools.cache(lambda mode: write_collected(tmp_path_factory.mktemp(mode) / mode, mode))


@pytest.fixture(scope="session", name="make")
def _make():
    """Makes environments without wrappers, each configuration once; tests reset them."""

    made = {}

    def make(environment_id="FleetTools/Hammer-v0", **keywords):
        key = json.dumps([environment_id, keywords], sort_keys=True)
        if key not in made:
            made[key] = gymnasium.make(environment_id, **keywords).unwrapped
        return made[key]

    return make


@pytest.fixture(scope="session", name="hammer")
def _hammer(make):
    """One pair of models, which is quick to go back to."""
    return make(tool="claw", object="round_nail")
