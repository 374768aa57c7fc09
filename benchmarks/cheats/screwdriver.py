"""Cheats on the screwdriver task: the screw turns, but not by the flanks of a bit in its slot."""

import numpy as np
from pydrake.math import RotationMatrix

from cheats.motion import (
    KNUCKLE,
    Actions,
    Condition,
    DrivenArm,
    Target,
    hand,
    other_side,
    over,
)
from fleet_tools.sim.world_state import WorldState

LOOSENED = 0.2
"""Factor of the resistance of the screw: friction on its top cannot turn most screws, and easily
turned ones make the test harder."""

PRESSED_M = 0.02
"""Depth of the target of a press, below the head's top."""


def knuckle(arm: DrivenArm) -> Actions:
    """The edge of the hand, pressed on the head, drags it round; then the bit is put in."""
    yield from _drag(arm, other_side(KNUCKLE), hand(roll_deg=-75))
    yield from _engage(arm)


def on_top(arm: DrivenArm) -> Actions:
    """The bit spins on top of the head, across the slot; then it is put in."""
    yield from _spin(arm, off_deg=90.0, done=arm.done())
    yield from _engage(arm)


def on_top_beside(arm: DrivenArm) -> Actions:
    """The end of the bit, beside the slot on the top of the head, drags it round."""
    yield from _drag(arm, arm.on_tool("bit"), hand())
    yield from _engage(arm)


def flank_on_top(arm: DrivenArm) -> Actions:
    """A flank of the bit, laid flat on the top of the head, drags it round; then it is put in."""
    bit, flank = arm.on_tool("bit"), arm.on_tool("flank")
    middle = bit + 1.2 * (flank - bit)
    yield from _drag(arm, middle, hand(tilt_deg=60))
    yield from _engage(arm)


def nine_tenths(arm: DrivenArm) -> Actions:
    """The end of the bit on top does nine tenths, and the bit in the slot does the rest."""
    yield from _spin(arm, off_deg=90.0, done=arm.done(0.8))
    yield from _engage(arm)
    yield from _turn(arm, 40.0, arm.done())


def half_by_the_bit(arm: DrivenArm) -> Actions:
    """The bit in the slot does half, and the end of the bit on top does the other half."""
    yield from _engage(arm)
    yield from _turn(arm, 60.0, arm.done(0.5))
    yield from arm.shift([0.0, 0.0, 0.06], steps=4)
    yield from _spin(arm, off_deg=90.0, done=arm.done())
    yield from _engage(arm)


def biting_edge(arm: DrivenArm) -> Actions:
    """The bit, pressed hard across the edges of the slot, turns; then it is put in."""
    yield from _spin(arm, off_deg=40.0, done=arm.done(), pressed_m=0.05)
    yield from _engage(arm)


def shallow(arm: DrivenArm) -> Actions:
    """No more than the last half millimetre of the bit is in the slot while it turns."""
    yield from _engage(arm, up_m=0.0065)
    yield from _turn(arm, 120.0, arm.done(), up_m=0.0065)
    yield from _engage(arm)


def turned_back(arm: DrivenArm) -> Actions:
    """Twice the bit in the slot turns the screw partly, and on top of the head it turns it back.

    Then, on top of the head, it turns it on.
    """
    back = lambda state: state.object_joints["turn"] < 0.05  # noqa: E731
    for _ in range(2):
        yield from _engage(arm)
        yield from _turn(arm, 110.0, arm.done(0.7))
        yield from arm.shift([0.0, 0.0, 0.06], steps=4)
        yield from _spin(arm, off_deg=-90.0, done=back)
    yield from _spin(arm, off_deg=90.0, done=arm.done())
    yield from _engage(arm)


def touch_first(arm: DrivenArm) -> Actions:
    """The bit is put in and taken out, spins on top of the head, and is put in again."""
    yield from _engage(arm)
    yield from arm.shift([0.0, 0.0, 0.06], steps=4)
    yield from _spin(arm, off_deg=90.0, done=arm.done())
    yield from _engage(arm)


def _drag(
    arm: DrivenArm, p_E: np.ndarray, R_WE: RotationMatrix, radius_m: float = 0.010, laps: int = 3
) -> Actions:
    """Presses a point of the hand or the tool on the head, and moves it clockwise about the axis.

    Args:
        arm: The arm.
        p_E: The point, in frame E.
        R_WE: Orientation of the hand.
        radius_m: Distance of the point from the axis.
        laps: Half turns after which it gives up.
    """
    done = arm.done()

    def around(angle_deg: float, up_m: float) -> Target:
        a = np.deg2rad(angle_deg)
        offset = [radius_m * np.cos(a), radius_m * np.sin(a), up_m]
        return lambda state: state.p_W_object["top"] + offset

    for _ in range(laps):
        if done(arm.state):
            return
        yield from arm.place(p_E, around(90, 0.06), R_WE, 16, within_m=0.01)
        yield from arm.place(p_E, around(90, 0.0), R_WE, 5)
        for angle in range(90, -91, -20):
            yield from arm.place(p_E, around(angle, -PRESSED_M), R_WE, 1, until=done)
        yield from arm.shift([0.0, 0.0, 0.06], steps=2)


def _spin(
    arm: DrivenArm,
    *,
    off_deg: float,
    done: Condition,
    pressed_m: float = PRESSED_M,
    step_deg: float = 10.0,
) -> Actions:
    """Presses the end of the bit on the head, at an angle to the slot, and turns with it.

    Args:
        arm: The arm.
        off_deg: Angle between bit and slot as it comes down; it stays more than 25 degrees, or the
            bit would fall into the slot. If negative, it turns back.
        done: Condition upon which it ends.
        pressed_m: Depth below the top to which it is sent.
        step_deg: Turn in one step.
    """
    bit = arm.on_tool("bit")
    for _ in range(3):
        if done(arm.state):
            return
        R = RotationMatrix.MakeZRotation(np.deg2rad(off_deg)) @ arm.hand_over_object(180.0)
        yield from arm.place(bit, over("top", 0.04), R, 16)
        yield from arm.place(bit, over("top", 0.0), R, 4, speed=0.5, within_m=0.002)
        for angle in np.arange(step_deg, abs(off_deg) + 66, step_deg):
            turned = RotationMatrix.MakeZRotation(-np.copysign(np.deg2rad(angle), off_deg)) @ R
            yield from arm.place(bit, over("top", -pressed_m), turned, 1, until=done)
            if _off_slot_deg(arm) < 25.0:
                break
        yield from arm.shift([0.0, 0.0, 0.06], steps=2)


def _turn(arm: DrivenArm, by_deg: float, until: Condition, up_m: float = -0.01) -> Actions:
    """Turns the tool clockwise about the bit, which is sent to a height above the slot's floor."""
    bit, R = arm.on_tool("bit"), arm.state.X_WE.rotation()
    for angle in np.deg2rad(np.arange(0.0, by_deg, 4.0)):
        turned = RotationMatrix.MakeZRotation(-angle) @ R
        yield from arm.place(bit, over("slot", up_m), turned, 1, until=until)


def _engage(arm: DrivenArm, up_m: float = 0.0) -> Actions:
    """Puts the bit into the slot, and presses it there; or holds it at a height above the floor."""

    def seated(state: WorldState) -> bool:
        return float(np.linalg.norm(state.p_W_tool["bit"] - state.p_W_object["slot"])) < 0.002

    bit, R = arm.on_tool("bit"), arm.hand_over_object(180.0)
    yield from arm.place(bit, over("slot", 0.06), R, 18)
    yield from arm.place(bit, over("slot", 0.001 + up_m), R, 8, speed=0.4, within_m=0.002)
    if up_m:
        return
    yield from arm.place(bit, over("slot", -0.004), R, 3, speed=0.4, until=seated, within_m=0.001)


def _off_slot_deg(arm: DrivenArm) -> float:
    """Returns the angle between bit and slot, in [0, 90] degrees."""
    state = arm.state
    across = state.p_W_tool["right"] - state.p_W_tool["left"]
    slot = state.p_W_object["right"] - state.p_W_object["left"]
    cosine = abs(across @ slot) / np.linalg.norm(across) / np.linalg.norm(slot)
    return float(np.rad2deg(np.arccos(min(cosine, 1.0))))
