"""Cheats on the spatula task: the slab is raised, or seems so, but not by the blade."""

import numpy as np
from pydrake.math import RotationMatrix

from cheats.motion import KNUCKLE, REST, Actions, DrivenArm, Target, hand, over
from fleet_tools.sim.scene import Push
from fleet_tools.sim.world_state import WorldState

_FORWARD_DEG = 90.0
"""Direction in which the tool points at the start: to the robot's left."""


def knuckle(arm: DrivenArm) -> Actions:
    """The edge of the hand goes under the slab's rim and lifts; then the blade hovers at it."""
    R = hand(_FORWARD_DEG, roll_deg=60)
    yield from _scoop(arm, KNUCKLE, R)
    yield from _hover(arm)


def wedge(arm: DrivenArm) -> Actions:
    """The hand drags the slab to the robot's base, and wedges it there; then the blade hovers."""
    R, p_E = hand(0.0, roll_deg=0.0, tilt_deg=60), arm.on_tool("tail")
    yield from arm.place(p_E, _beyond(0.09, 0.08), R, 20, within_m=0.02)
    yield from arm.place(p_E, _beyond(0.09, 0.01), R, 6)
    for _ in range(24):
        yield from arm.place(p_E, _beyond(-0.05, 0.01), R, 1)
    yield from arm.shift([0.0, 0.0, 0.10], steps=4)
    yield from _hover(arm)


def push_and_hover(arm: DrivenArm) -> Actions:
    """The hand pushes the slab about, and the blade hovers above it, and lies on it."""
    R, p_E = hand(_FORWARD_DEG, roll_deg=60), KNUCKLE
    yield from arm.place(p_E, _rim(arm, 0.12, 0.06), R, 18)
    yield from arm.place(p_E, _rim(arm, 0.12, 0.006), R, 6)
    yield from arm.place(p_E, _rim(arm, 0.02, 0.006), R, 6)
    yield from _hover(arm)
    yield from arm.place(arm.on_tool("sole"), over("top", 0.0), hand(_FORWARD_DEG), 8)


def against_the_hand(arm: DrivenArm) -> Actions:
    """The slab slides down the raised blade against the neck or the hand, which lift it."""
    yield from arm.follow_expert(until=_is_under)
    R, face = arm.state.X_WE.rotation(), arm.on_tool("face")
    for tilt_deg, up_m, steps in ((50, 0.042, 8), (50, 0.10, 6), (-15, 0.10, 14), (0, 0.10, 8)):
        goal = _raised(arm.state.p_W_tool["face"], up_m)
        tilted = R @ RotationMatrix.MakeYRotation(np.deg2rad(tilt_deg))
        yield from arm.place(face, goal, tilted, steps, speed=0.5)


def handed_again(arm: DrivenArm) -> Actions:
    """The blade lifts the slab and lays it down, twice; then somebody lays it on the blade."""
    for _ in range(2):
        yield from arm.follow_expert(until=arm.done(0.9))
        yield from arm.shift([0.0, 0.0, 0.001 - arm.state.p_W_object["base"][2]], steps=10)
        back = arm.state.p_W_tool["heel"] - arm.state.p_W_tool["edge"]
        yield from arm.shift(0.20 * back / np.linalg.norm(back), steps=14)
    yield from _wait_above(arm, HANDED_AGAIN)


def handed(arm: DrivenArm) -> Actions:
    """The blade waits above the slab, until somebody (`HANDED`) lays the slab upon it."""
    yield from _wait_above(arm, HANDED)


def _wait_above(arm: DrivenArm, push: Push) -> Actions:
    """Waits with the blade above the slab, until a push has laid the slab upon it."""
    level = arm.level_hand(_FORWARD_DEG)
    face = arm.on_tool("face")
    goal = _raised(arm.state.p_W_object["base"], 0.08)
    yield from arm.place(face, goal, level, 30, within_m=0.002)
    while arm.env.world_state().time < push.time_s + 2.0:
        yield REST


HANDED, HANDED_AGAIN = (Push(time_s=t, translation_m=(0.0, 0.0, 0.095)) for t in (5.85, 35.0))
"""Displacements of the slab that belong to the cheats `handed` and `handed_again`."""

OTHERS = {handed: {"push": HANDED}, handed_again: {"push": HANDED_AGAIN}}


def _is_under(state: WorldState) -> bool:
    """Whether the middle of the blade is under the middle of the slab."""
    return bool(np.linalg.norm(state.p_W_tool["face"] - state.p_W_object["base"]) < 0.035)


def _raised(p_W: np.ndarray, to_m: float) -> Target:
    """Returns a target above a point, at a height over the table."""
    goal = np.array([p_W[0], p_W[1], to_m])
    return lambda _: goal


def _rim(arm: DrivenArm, outwards_m: float, up_m: float) -> Target:
    """Returns a target on the near side of the slab, at a distance from its middle."""
    back = -np.array([np.cos(np.deg2rad(_FORWARD_DEG)), np.sin(np.deg2rad(_FORWARD_DEG)), 0.0])

    def target(state: WorldState) -> np.ndarray:
        return state.p_W_object["base"] + outwards_m * back + [0.0, 0.0, up_m]

    return target


def _beyond(outwards_m: float, up_m: float) -> Target:
    """Returns a target on the side of the slab that looks away from the robot's base."""

    def target(state: WorldState) -> np.ndarray:
        base = state.p_W_object["base"]
        away = base * [1.0, 1.0, 0.0] / np.linalg.norm(base[:2])
        return base + outwards_m * away + [0.0, 0.0, up_m]

    return target


def _scoop(arm: DrivenArm, p_E: np.ndarray, R_WE: RotationMatrix) -> Actions:
    """Drives a point under the slab's rim, and lifts it."""
    yield from arm.place(p_E, _rim(arm, 0.11, 0.06), R_WE, 20, within_m=0.02)
    yield from arm.place(p_E, _rim(arm, 0.11, 0.0), R_WE, 6)
    for _ in range(8):
        yield from arm.place(p_E, _rim(arm, -0.02, -0.01), R_WE, 1, speed=0.6)
    yield from arm.shift([0.0, 0.0, 0.12], steps=6, speed=0.6)


def _hover(arm: DrivenArm) -> Actions:
    face, R = arm.on_tool("face"), hand(_FORWARD_DEG)
    yield from arm.place(face, over("top", 0.06), R, 20, within_m=0.01)
    yield from arm.place(face, over("top", 0.02), R, 10, speed=0.5)
