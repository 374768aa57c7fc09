"""Honest ways on the wrench task: the jaw turns the nut, otherwise than the expert."""

import numpy as np
from cheats.motion import Actions, DrivenArm, over
from pydrake.math import RotationMatrix

from fleet_tools.config.expert import Keyframe
from honest_ways.edits import follow_edited, rotate, stay, translate

_DOWN = ("top", "base")
_UP_M = 0.06


def two_strokes(arm: DrivenArm) -> Actions:
    """Two strokes, with a new seat on the next flats in between."""
    yield from _strokes(arm, 40.0, 2)


def three_strokes(arm: DrivenArm) -> Actions:
    """Three short strokes, with a new seat on the next flats after each."""
    yield from _strokes(arm, 30.0, 3)


def same_seat_again(arm: DrivenArm) -> Actions:
    """Half of the turn; then the jaw is lifted, put on the same flats again, and goes on."""
    seat = [translate(0, 0, _UP_M), translate(0, 0, -_UP_M)]
    yield from follow_edited(arm, after=[_clockwise(35), *seat, _clockwise(35), stay(1.0)])


def other_flats(arm: DrivenArm) -> Actions:
    """The jaw sits on the next pair of flats."""
    turn = 90.0 if arm.env.scene.object == "square_nut" else 60.0
    yield from follow_edited(arm, terms={1: {"angle_deg": turn}})


def rocking(arm: DrivenArm) -> Actions:
    """The wrench gives way a little after each part of the turn."""
    yield from follow_edited(
        arm, after=[_clockwise(27), _clockwise(-4)] * 3 + [_clockwise(8), stay(1.0)]
    )


def tilted(arm: DrivenArm) -> Actions:
    """The wrench leans by 4 degrees."""
    yield from follow_edited(arm, terms={2: {"angle_deg": 4.0}})


def from_the_side(arm: DrivenArm) -> Actions:
    """The jaw slides upon the nut from the side instead of from above."""
    across = arm.on_tool("left") - arm.on_tool("right")
    opening = np.cross(across, arm.on_tool("upper") - arm.on_tool("lower"))
    opening *= np.sign(opening @ (arm.on_tool("jaw") - arm.on_handle(0.0)))
    back = -0.05 * opening / np.linalg.norm(opening)
    before = [
        translate(*(back - [0.0, 0.0, _UP_M]), frame="end_effector"),
        translate(*back, frame="end_effector"),
    ]
    yield from follow_edited(arm, before=before)


def too_far(arm: DrivenArm) -> Actions:
    """The nut is turned by a third more than is asked for."""
    yield from follow_edited(arm, after=[_clockwise(85), stay(1.0)])


def lets_go(arm: DrivenArm) -> Actions:
    """The jaw is lifted off at once after the turn."""
    yield from follow_edited(arm, after=[_clockwise(70), translate(0, 0, 0.08, speed=1.0)])


def after_a_miss(arm: DrivenArm) -> Actions:
    """The jaw first comes down across the corners of the nut; then the expert's turn."""
    jaw, R = arm.on_tool("jaw"), arm.hand_over_object(60.0)
    off = RotationMatrix.MakeZRotation(np.deg2rad(25)) @ R
    yield from arm.place(jaw, over("nut", 0.06), off, 16)
    yield from arm.place(jaw, over("nut", 0.005), off, 5, speed=0.3)
    yield from arm.shift([0.0, 0.0, 0.08], steps=4)
    yield from arm.follow_expert()


def _clockwise(angle_deg: float) -> Keyframe:
    return rotate(angle_deg, "nut", _DOWN)


def _strokes(arm: DrivenArm, angle_deg: float, count: int) -> Actions:
    between_flats = 90.0 if arm.env.scene.object == "square_nut" else 60.0
    seat = [
        translate(0, 0, _UP_M, speed=0.6),
        rotate(-between_flats, "nut", _DOWN, speed=0.8),
        translate(0, 0, -_UP_M, speed=0.6),
    ]
    stroke = [_clockwise(angle_deg)]
    yield from follow_edited(arm, after=[*stroke, *(seat + stroke) * (count - 1), stay(0.5)])
