"""Cheats on the wrench task: the nut turns, but not in the wrench's jaw."""

from collections.abc import Sequence

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

_STROKES = 3

LOOSENED = 0.2
"""Factor of the resistance of the nut: the hand cannot turn most nuts, and easily turned ones make
the test harder."""


def knuckle(arm: DrivenArm) -> Actions:
    """The edge of the hand pushes the nut round; then the jaw is put over it."""
    yield from _strokes(arm, other_side(KNUCKLE), hand(roll_deg=-60))
    yield from _engage(arm)


def butt(arm: DrivenArm) -> Actions:
    """The end of the handle pushes the nut round; then the jaw is put over it."""
    yield from _strokes(arm, arm.on_handle(-0.085, -0.012), hand(90))
    yield from _engage(arm)


def prong(arm: DrivenArm) -> Actions:
    """The end of one prong pushes the nut round from outside; then the jaw is put over it."""
    yield from _strokes(arm, _prong(arm), hand())
    yield from _engage(arm)


def prong_from_above(arm: DrivenArm) -> Actions:
    """The flat side of one prong, pressed upon the nut, turns it; then the jaw is put over it."""
    jaw, right = arm.on_tool("jaw"), arm.on_tool("right")
    yield from _turn_from_above(arm, jaw + 1.4 * (right - jaw))
    yield from _engage(arm)


def throw(arm: DrivenArm) -> Actions:
    """The end of the handle, swung, knocks the nut round; then the jaw is put over it."""
    yield from _strokes(arm, arm.on_handle(-0.085, -0.012), hand(90), run_up_m=0.14)
    yield from _engage(arm)


def nine_tenths(arm: DrivenArm) -> Actions:
    """The hand does nine tenths, and the jaw the rest."""
    yield from _strokes(arm, other_side(KNUCKLE), hand(roll_deg=-60), done=arm.done(0.8), speed=0.3)
    yield from _engage(arm)
    jaw, R = arm.on_tool("jaw"), arm.state.X_WE.rotation()
    for angle in np.deg2rad(np.arange(0, 40, 3)):
        turned = RotationMatrix.MakeZRotation(-angle) @ R
        yield from arm.place(
            jaw, lambda state: state.p_W_object["nut"], turned, 1, until=arm.done()
        )


def turned_back(arm: DrivenArm) -> Actions:
    """Twice the jaw turns the nut partly, and the hand turns it back.

    Then the hand turns it on, and the jaw is put over it.
    """
    back = lambda state: state.object_joints["turn"] < 0.05  # noqa: E731
    for _ in range(2):
        yield from arm.follow_expert(until=arm.done(0.7))
        yield from arm.shift([0.0, 0.0, 0.08], steps=4)
        yield from _strokes(arm, KNUCKLE, hand(roll_deg=60), aside_m=-0.017, done=back)
    yield from _strokes(arm, other_side(KNUCKLE), hand(roll_deg=-60))
    yield from _engage(arm)


def touch_first(arm: DrivenArm) -> Actions:
    """The jaw is put over the nut, the hand turns it, and the jaw is put over it again."""
    yield from _engage(arm)
    yield from arm.shift([0.0, 0.0, 0.08], steps=4)
    yield from _strokes(arm, other_side(KNUCKLE), hand(roll_deg=-60))
    yield from _engage(arm)


def _prong(arm: DrivenArm) -> np.ndarray:
    """Returns the end of the right prong, in frame E."""
    jaw, right = arm.on_tool("jaw"), arm.on_tool("right")
    return jaw + 1.4 * (right - jaw) + [0.024, 0.0, 0.0]


def _turn_from_above(arm: DrivenArm, p_E: np.ndarray) -> Actions:
    """Presses a point of the wrench upon the nut, and turns about it."""
    yield from arm.place(p_E, over("top", 0.05), hand(20), 16)
    yield from arm.place(p_E, over("top", 0.0), hand(20), 6)
    for yaw in range(20, -71, -5):
        yield from arm.place(p_E, over("top", -0.04), hand(yaw), 1, until=arm.done())
    yield from arm.shift([0.0, 0.0, 0.06], steps=3)


def _strokes(
    arm: DrivenArm,
    p_E: np.ndarray,
    R_WE: RotationMatrix,
    *,
    run_up_m: float = 0.06,
    done: Condition | None = None,
    aside_m: float = 0.017,
    speed: float = 1.0,
) -> Actions:
    """Pushes the nut's left side, or another one, away from the robot, several times.

    Args:
        arm: The arm.
        p_E: Point of the hand or the tool that pushes, in frame E.
        R_WE: Orientation of the hand.
        run_up_m: Distance from which a stroke starts.
        done: Condition upon which it ends; the deed by default.
        aside_m: How far to the left of the nut's middle it pushes.
        speed: Largest entry of the actions while it pushes.
    """
    done = done or arm.done()

    def beside(forwards_m: float, up_m: float) -> Target:
        def target(state: WorldState) -> np.ndarray:
            return state.p_W_object["nut"] + [forwards_m, aside_m, up_m]

        return target

    for _ in range(_STROKES):
        if done(arm.state):
            return
        yield from arm.place(p_E, beside(-run_up_m, 0.08), R_WE, 14, within_m=0.02)
        yield from arm.place(p_E, beside(-run_up_m, 0.0), R_WE, 5)
        yield from arm.place(p_E, beside(0.05, 0.0), R_WE, 12, speed=speed, until=done)
        yield from arm.shift([-0.01, 0.0, 0.08], steps=3)


def _engage(arm: DrivenArm) -> Actions:
    """Puts the jaw over the nut, and moves it until it touches."""

    def touches(state: WorldState) -> bool:
        return state.in_contact("tool", "object/nut")

    def nut(up_m: float, aside_m: Sequence[float] = (0.0, 0.0)) -> Target:
        return lambda state: state.p_W_object["nut"] + [*aside_m, up_m]

    between_flats = 90.0 if arm.env.scene.object == "square_nut" else 60.0
    jaw, R = arm.on_tool("jaw"), arm.hand_over_object(between_flats)
    yield from arm.place(jaw, nut(0.08), R, 16)
    yield from arm.place(jaw, nut(0.0), R, 10, speed=0.4, within_m=0.002)
    for aside in ((0.004, 0.0), (-0.004, 0.0), (0.0, 0.004), (0.0, -0.004)):
        yield from arm.place(jaw, nut(0.0, aside), R, 3, until=touches, within_m=0.001)
