"""Cheats on the pry bar task: the lid opens, but not by a blade under it that bears on the sill."""

import numpy as np
from pydrake.math import RotationMatrix

from cheats.motion import (
    KNUCKLE,
    REST,
    Actions,
    Condition,
    DrivenArm,
    Target,
    hand,
)
from fleet_tools.sim.world_state import WorldState

LOOSENED = 0.05
"""Factor of the resistance of the lid: friction on its front cannot open any lid, and easily opened
ones make the test harder."""

BEHIND_M = 0.008
"""Distance of the keypoints on the lid behind its front."""


def knuckle(arm: DrivenArm) -> Actions:
    """The edge of the hand, pressed on the lid's front, drags it up; then the bar is put under."""
    yield from _drag(arm, KNUCKLE, hand(roll_deg=70), pressed_m=0.02)
    yield from _put_under(arm)


def butt(arm: DrivenArm) -> Actions:
    """The end of the handle, pressed on the lid's side, drags it up; then the bar is put under."""
    yield from _drag(arm, arm.on_handle(-0.075), hand(90, tilt_deg=15), side="left", pressed_m=0.02)
    yield from _put_under(arm)


def end_of_blade(arm: DrivenArm) -> Actions:
    """The end of the blade, pressed on the lid's front, drags it up; then it is put under it."""
    yield from _drag(arm, arm.on_tool("tip"), hand(tilt_deg=-10))
    yield from _put_under(arm)


def corner(arm: DrivenArm) -> Actions:
    """A corner of the blade, pressed on the lid's side, drags it up; then it is put under it."""
    yield from _drag(arm, arm.on_tool("right"), hand(-30, roll_deg=20), side="left")
    yield from _put_under(arm)


def side_of_lid(arm: DrivenArm) -> Actions:
    """The end of the blade, pressed on the lid's side, drags it up; then it is put under it."""
    yield from _drag(arm, arm.on_tool("tip"), hand(60), side="right")
    yield from _put_under(arm)


def lift(arm: DrivenArm) -> Actions:
    """The blade lifts the lid from below without bearing on the sill, and holds it there."""
    yield from _to_slot(arm)
    yield from arm.shift([0.0, 0.0, 0.08], steps=14, speed=0.2)


def lift_then_sill(arm: DrivenArm) -> Actions:
    """The blade lifts the lid without the sill, and is then laid on it, its tip up at the lid."""
    yield from _to_slot(arm)
    yield from _raise(arm)
    yield from _lay_on_sill(arm)


def blows(arm: DrivenArm) -> Actions:
    """Blows of the blade from below knock the lid open; then the bar is laid on the sill.

    This opens lids as they are, too.
    """
    yield from _to_slot(arm)
    low = arm.state.X_WE.translation()[2]
    for _ in range(20):
        if arm.state.object_joints["open"] > 0.24:
            break
        yield np.array([0.0, 0.0, -1.0, 0.0, 0.0, 0.0])
        yield from arm.shift([0.0, 0.0, low - 0.002 - arm.state.X_WE.translation()[2]], steps=1)
    yield from _lay_on_sill(arm)


def against_the_cheek(arm: DrivenArm) -> Actions:
    """The blade lifts the lid while its side is pressed on the side of the slot."""
    yield from _to_slot(arm)
    across = np.cross(_outwards(arm.state), [0.0, 0.0, 1.0])
    yield from arm.shift(0.05 * across, steps=4, speed=0.3)
    yield from _raise(arm, 0.02 * across)
    yield from _lay_on_sill(arm)


def half_by_the_bar(arm: DrivenArm) -> Actions:
    """The bar levers the lid half open, and the edge of the hand drags it up the other half."""
    yield from _pry(arm, arm.done(0.5))
    yield from arm.shift(0.06 * _outwards(arm.state), steps=4)
    yield from _drag(arm, KNUCKLE, hand(roll_deg=70), pressed_m=0.02)
    yield from _put_under(arm)


def nine_tenths(arm: DrivenArm) -> Actions:
    """The edge of the hand does most, and the bar, put under the lid, does the rest."""
    yield from _drag(arm, KNUCKLE, hand(roll_deg=70), pressed_m=0.02, until=arm.done(0.6))
    if arm.deed() > 0.5:
        yield from _pry(arm, arm.done())


def touch_first(arm: DrivenArm) -> Actions:
    """The bar is put under and taken out, the hand drags the lid up, the bar is put under again."""
    yield from _pry(arm, arm.done(0.1))
    yield from arm.shift(0.06 * _outwards(arm.state), steps=4)
    yield from _drag(arm, KNUCKLE, hand(roll_deg=70), pressed_m=0.02)
    yield from _put_under(arm)


def pressed_shut(arm: DrivenArm) -> Actions:
    """Twice the bar levers the lid open partly, and the hand presses it shut.

    Then the hand drags it up, and the bar is put under.
    """
    for _ in range(2):
        yield from _pry(arm, arm.done(0.7))
        yield from arm.shift(0.06 * _outwards(arm.state), steps=4)
        yield from _press_down(arm)
    yield from _drag(arm, KNUCKLE, hand(roll_deg=70), pressed_m=0.02)
    yield from _put_under(arm)


def _outwards(state: WorldState) -> np.ndarray:
    """Returns the horizontal direction from the lid to the sill, (3,)."""
    out = np.cross([0.0, 0.0, 1.0], state.p_W_object["left"] - state.p_W_object["right"])
    return out / np.linalg.norm(out)


def _turned(arm: DrivenArm, R_WE: RotationMatrix) -> RotationMatrix:
    """Returns an orientation of `hand` that goes with the chest's."""
    return RotationMatrix.MakeZRotation(np.deg2rad(arm.env.scene.object_pose.rpy_deg[2])) @ R_WE


def _drag(
    arm: DrivenArm,
    p_E: np.ndarray,
    R_WE: RotationMatrix,
    *,
    side: str = "",
    pressed_m: float = 0.045,
    until: Condition | None = None,
) -> Actions:
    """Presses a point of the hand or the tool on the lid's front, or its side, and moves it up.

    Args:
        arm: The arm.
        p_E: The point, in frame E.
        R_WE: Orientation of the hand for a chest that looks at the robot.
        side: Side of the lid on which it presses, "left" or "right"; its front by default.
        pressed_m: Depth behind the surface to which the point is sent.
        until: Condition upon which it ends; the deed by default.
    """
    done, R = until or arm.done(), _turned(arm, R_WE)

    def at(off_m: float, up_m: float) -> Target:
        def target(state: WorldState) -> np.ndarray:
            p = state.p_W_object
            if side:
                across = p[side] - p["sill"]
                return p[f"lid_{side}"] + off_m * across / np.linalg.norm(across) + [0, 0, up_m]
            front = (p["lid_left"] + p["lid_right"]) / 2 + BEHIND_M * _outwards(state)
            return front + off_m * _outwards(state) + [0.0, 0.0, up_m]

        return target

    for _ in range(3):
        if done(arm.state):
            return
        yield from arm.place(p_E, at(0.05, 0.10), R, 16, within_m=0.015)
        yield from arm.place(p_E, at(0.03, 0.008), R, 8, within_m=0.008)
        yield from arm.place(p_E, at(-pressed_m, 0.008), R, 1)
        start = at(-pressed_m, 0.008)(arm.state)
        for up_m in np.arange(0.006, 0.07, 0.006):
            goal = start + np.array([0.0, 0.0, up_m])
            yield from arm.place(p_E, lambda _, goal=goal: goal, R, 1, until=done)
        yield from arm.shift(0.06 * _outwards(arm.state) + [0.0, 0.0, 0.02], steps=3)


def _press_down(arm: DrivenArm) -> Actions:
    """Presses the edge of the hand on the lid from above, until it is shut."""

    def above(up_m: float) -> Target:
        return lambda state: (
            (state.p_W_object["lid_left"] + state.p_W_object["lid_right"]) / 2 + [0.0, 0.0, up_m]
        )

    R = _turned(arm, hand(roll_deg=70))
    yield from arm.place(KNUCKLE, above(0.10), R, 16, within_m=0.015)
    for _ in range(20):
        if arm.state.object_joints["open"] < 0.01:
            break
        yield from arm.place(KNUCKLE, above(-0.01), R, 1, speed=0.5)
    yield from arm.shift([0.0, 0.0, 0.08], steps=4)


def _level(arm: DrivenArm, tilt_deg: float = 0.0) -> RotationMatrix:
    """Returns the orientation in which the blade looks at the lid, its sole level or tilted up."""
    back, along = (arm.on_tool("heel") - arm.on_tool(name) for name in ("back", "tip"))
    axes = [-along, np.cross(back, -along), back]
    R_EB = RotationMatrix(np.column_stack([axis / np.linalg.norm(axis) for axis in axes]))
    return _turned(arm, hand(tilt_deg=tilt_deg)) @ R_EB.inverse()


def _to_slot(arm: DrivenArm) -> Actions:
    """Brings the blade over the sill and under the lid."""

    def sill(out_m: float, up_m: float) -> Target:
        return lambda s: s.p_W_object["sill"] + out_m * _outwards(s) + [0.0, 0.0, up_m]

    heel, R = arm.on_tool("heel"), _level(arm)
    yield from arm.place(heel, sill(0.05, 0.08), R, 18, within_m=0.01)
    yield from arm.place(heel, sill(0.05, 0.002), R, 8, within_m=0.002)
    yield from arm.place(heel, sill(0.0, 0.001), R, 6, speed=0.4, within_m=0.002)


def _raise(arm: DrivenArm, aside_m: np.ndarray = REST[:3]) -> Actions:
    """Moves the hand up, and perhaps aside, in small steps until the deed is done."""
    for _ in range(16):
        if arm.deed() == 1.0:
            return
        yield from arm.shift(aside_m + np.array([0.0, 0.0, 0.015]), steps=1, speed=0.2)


def _lay_on_sill(arm: DrivenArm) -> Actions:
    """Lowers the heel of the blade onto the sill, while its tip stays where it is under the lid."""
    tip, where = arm.on_tool("tip"), arm.state.p_W_tool["tip"]
    if arm.deed() == 1.0:
        for tilt_deg in np.arange(3.0, 40.0, 3.0):
            R = _level(arm, tilt_deg)
            yield from arm.place(tip, lambda _: where, R, 1, until=_touches_both)


def _put_under(arm: DrivenArm) -> Actions:
    """Puts the bar on the sill, its tip up against an open lid, as if it had opened it."""
    if arm.deed() == 1.0:
        yield from _pry(arm, _touches_both)


def _touches_both(state: WorldState) -> bool:
    return all(state.in_contact("tool", f"object/{link}") for link in ("lid", "case"))


def _pry(arm: DrivenArm, until: Condition) -> Actions:
    """Turns the bar about the sill, its tip under the lid, until a condition holds."""

    def sill(state: WorldState) -> np.ndarray:
        return state.p_W_object["sill"] - [0.0, 0.0, 0.002]

    yield from _to_slot(arm)
    heel = arm.on_tool("heel")
    for tilt_deg in np.arange(3.0, 34.0, 3.0):
        yield from arm.place(heel, sill, _level(arm, tilt_deg), 1, until=until)
