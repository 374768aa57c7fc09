"""The environments, a hand that presses nails, and the comparison of observations."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from pydrake.common.eigen_geometry import AngleAxis
from pydrake.math import RigidTransform, RotationMatrix
from pydrake.multibody.math import SpatialVelocity

from fleet_tools.envs.episode_state import EnvState
from fleet_tools.envs.tool_use_env import ToolUseEnv, unwrap
from fleet_tools.registration import CUSTOM_ID
from fleet_tools.robot.pose_delta import displacement

IDS = sorted({name for name in gymnasium.registry if name.startswith("FleetTools/")} - {CUSTOM_ID})
"""Ids of the environments of the package's own tasks."""


def press(env: ToolUseEnv, goal_m: Sequence[float] = (0.0, 0.0, -0.01)) -> np.ndarray:
    """Returns the action that turns the hammer upright and brings its head to the nail's head.

    Args:
        env: An environment of the hammer.
        goal_m: (3,), offset of the hammer's goal from the nail's head, once it is above it.
    """
    state = env.world_state()
    head, nail = state.p_W_tool["head"], state.p_W_object["head"]
    axis = head - state.p_W_tool["side"]
    turn = np.cross(axis, [0.0, 0.0, -1.0])
    sine = np.linalg.norm(turn)
    R = RotationMatrix(AngleAxis(np.arctan2(sine, -axis[2]), turn / sine)) if sine else None
    R_WD = R @ state.X_WE.rotation() if R else state.X_WE.rotation()
    p_EHead = state.X_WE.inverse() @ head
    near = np.linalg.norm((head - nail)[:2]) < 0.004
    target = nail + np.array(goal_m if near else [0.0, 0.0, 0.03])
    X_WD = RigidTransform(R_WD, target - R_WD @ p_EHead)
    action = displacement(state.X_WE, X_WD) / env.action_scale
    return (action / max(1.0, np.abs(action).max())).astype(np.float32)


def press_until_sliding(env: ToolUseEnv, **reset: Any) -> None:
    """Begins an episode, and stops while the hammer is pushing the nail into its block."""
    env.reset(**reset)
    for _ in range(40):
        env.step(press(env))
        state = env.world_state()
        if state.F_E[5] < -5.0 and state.object_joints["slide"] > 0.001:
            return
    raise AssertionError("the hammer never reached the nail")


def drive(env: gymnasium.Env, steps: int = 60) -> list[tuple]:
    """Presses until the episode ends, and returns the results of the steps."""
    results = []
    for _ in range(steps):
        results.append(env.step(press(unwrap(env))))
        if results[-1][2] or results[-1][3]:
            break
    return results


def same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    """Returns whether two observations agree bit for bit."""
    return first.keys() == second.keys() and all(
        first[key].tobytes() == second[key].tobytes() for key in first
    )


def bits(trace: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Returns a trace as plain JSON data, without loss."""
    return [[_plain(part) for part in entry] for entry in trace]


def _plain(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: _plain(value) for key, value in part.items()}
    return part.tobytes().hex() if isinstance(part, np.ndarray) else part


def with_velocity(env: ToolUseEnv, velocity: float) -> EnvState:
    """Returns the present state with every joint of the arm at another velocity, rad/s."""
    state = env.get_state()
    x = state.snapshot.x.copy()
    x[8:15] = velocity
    return replace(state, snapshot=replace(state.snapshot, x=x))


Placement = RigidTransform | tuple[RigidTransform, Sequence[float] | np.ndarray]
"""A body's pose in W, or its pose and its velocity, m/s."""


def with_bodies(env: ToolUseEnv, state: EnvState, **bodies: Placement) -> EnvState:
    """Returns a state with some links of the object placed elsewhere, without rotating, by name."""
    plant = env.simulation.world.plant
    context = plant.CreateDefaultContext()
    plant.SetPositionsAndVelocities(context, state.snapshot.x)
    for link, given in bodies.items():
        X_WB, v_W = given if isinstance(given, tuple) else (given, np.zeros(3))
        body = plant.GetBodyByName(link)
        plant.SetFreeBodyPose(context, body, X_WB)
        velocity = SpatialVelocity(np.zeros(3), np.array(v_W, float))
        plant.SetFreeBodySpatialVelocity(context, body, velocity)
    x = plant.GetPositionsAndVelocities(context)
    return replace(state, snapshot=replace(state.snapshot, x=x))
