"""Cheats on the hammer task: the nail goes in, but not by the hammer's face."""

import numpy as np
from pydrake.math import RotationMatrix

from cheats.motion import (
    FINGERTIP,
    KNUCKLE,
    REST,
    WRIST,
    Actions,
    Condition,
    DrivenArm,
    hand,
    over,
)
from fleet_tools.sim.scene import ObjectForce


def fingers(arm: DrivenArm) -> Actions:
    """A finger pushes the nail in; then the face hovers above it."""
    yield from _press(arm, FINGERTIP, hand(roll_deg=30), arm.done())
    yield from _hover(arm)


def knuckle(arm: DrivenArm) -> Actions:
    """The edge of the hand pushes the nail in; then the face hovers above it."""
    yield from _press(arm, KNUCKLE, hand(roll_deg=60), arm.done())
    yield from _hover(arm)


def wrist(arm: DrivenArm) -> Actions:
    """The arm's sixth link pushes the nail in; then the face hovers above it."""
    yield from _press(arm, WRIST, hand(roll_deg=75), arm.done())
    yield from _hover(arm)


def grip(arm: DrivenArm) -> Actions:
    """The handle between the fingers pushes the nail in; then the face hovers above it."""
    yield from _press(arm, _grip(arm), hand(), arm.done())
    yield from _hover(arm)


def handle(arm: DrivenArm) -> Actions:
    """The middle of the handle pushes the nail in; then the face hovers above it."""
    yield from _press(arm, arm.on_handle(0.07, 0.0, 0.012), hand(tilt_deg=15), arm.done())
    yield from _hover(arm)


def butt(arm: DrivenArm) -> Actions:
    """The end of the handle pushes the nail in; then the face hovers above it."""
    yield from _press(arm, arm.on_tool("tail"), hand(tilt_deg=50), arm.done())
    yield from _hover(arm)


def cheek(arm: DrivenArm) -> Actions:
    """The side of the head, behind the face, pushes the nail in; then the face hovers above it."""
    yield from _press(arm, _behind_face(arm, 0.035), hand(roll_deg=-90), arm.done())
    yield from _hover(arm)


def cheek_at_the_face(arm: DrivenArm) -> Actions:
    """The side of the head, at the rim of the face, pushes the nail in; then the face hovers."""
    yield from _press(arm, _behind_face(arm, 0.008), hand(roll_deg=-90), arm.done())
    yield from _hover(arm)


def throw(arm: DrivenArm) -> Actions:
    """The handle, swung from above, knocks the nail in; then the face hovers above it."""
    point, R = arm.on_handle(0.06, 0.0, 0.012), hand(tilt_deg=15)
    for _ in range(3):
        yield from arm.place(point, over("head", 0.12), R, 9, within_m=0.02, until=arm.done())
        yield from arm.place(point, over("head", -0.05), R, 4, until=arm.done())
    yield from _hover(arm)


def first_part(arm: DrivenArm) -> Actions:
    """The handle between the fingers does the first part, and the face the rest."""
    yield from _press(arm, _grip(arm), hand(), arm.done(0.3), speed=0.6)
    yield from arm.place(arm.on_tool("head"), over("head", 0.05), hand(), 12)
    yield from arm.place(arm.on_tool("head"), over("head", -0.03), hand(), 12, until=arm.done())


def pulled_out(arm: DrivenArm) -> Actions:
    """Twice the face presses the nail in partly, and somebody (`PULLED`) pulls it out.

    At last they push it in, and the face hovers above it.
    """
    head = arm.on_tool("head")
    for pulled in PULLED[:-1]:
        yield from arm.place(head, over("head", 0.04), hand(), 16)
        yield from arm.place(head, over("head", -0.03), hand(), 30, speed=0.1, until=arm.done(0.7))
        yield from arm.shift([0.0, 0.0, 0.08], steps=4)
        while arm.state.time < pulled.start_s + 0.5:
            yield REST
    while arm.state.time < PULLED[-1].start_s + 0.5:
        yield REST
    yield from _hover(arm)


def _force(start_s: float, upwards: float) -> ObjectForce:
    """Returns a force on the nail, N for each kilogram of it, for a sixth of a second."""
    return ObjectForce(start_s=start_s, duration_s=0.16, force_N_per_kg=(0.0, 0.0, upwards))


PULLED = (_force(10.0, 400.0), _force(20.0, 400.0), _force(21.0, -400.0))
"""Forces on the nail, which is held by 2 N, that belong to the cheat `pulled_out`."""

OTHERS = {pulled_out: {"object_forces": PULLED, "joint_resistance": {"slide": 2.0}}}


def touch_first(arm: DrivenArm) -> Actions:
    """The face touches the nail, the handle pushes it in, and the face hovers above it."""
    head, touches = arm.on_tool("head"), lambda state: state.in_contact("tool", "object/nail")
    yield from arm.place(head, over("head", 0.03), hand(), 12)
    yield from arm.place(head, over("head", -0.01), hand(), 6, speed=0.1, until=touches)
    yield from _press(arm, _grip(arm), hand(), arm.done())
    yield from _hover(arm)


def lean_on_face(arm: DrivenArm) -> Actions:
    """The nail is pushed in by the handle, and at last touched by the face instead of hovered."""
    yield from _press(arm, _grip(arm), hand(), arm.done())
    yield from arm.place(arm.on_tool("head"), over("head", 0.05), hand(), 12)
    yield from arm.place(arm.on_tool("head"), over("head", -0.001), hand(), 12, speed=0.2)


def _grip(arm: DrivenArm) -> np.ndarray:
    return arm.on_handle(0.0, 0.0, 0.015)


def _behind_face(arm: DrivenArm, distance_m: float) -> np.ndarray:
    """Returns a point of the head's right side, at a distance behind the face, in frame E."""
    head, side = arm.on_tool("head"), arm.on_tool("side")
    back = (side - head) / np.linalg.norm(side - head)
    return head + distance_m * back - [0.0, 0.015, 0.0]


def _press(
    arm: DrivenArm, p_E: np.ndarray, R_WE: RotationMatrix, until: Condition, speed: float = 1.0
) -> Actions:
    """Presses a point of the hand or the tool upon the nail, and rises."""
    yield from arm.place(p_E, over("head", 0.05), R_WE, 16)
    yield from arm.place(p_E, over("head", -0.05), R_WE, 14, speed=speed, until=until)
    yield from arm.shift([0.0, 0.0, 0.06], steps=3)


def _hover(arm: DrivenArm) -> Actions:
    head = arm.on_tool("head")
    yield from arm.place(head, over("head", 0.06), hand(), 16, within_m=0.01)
    yield from arm.place(head, over("head", 0.012), hand(), 10, speed=0.5)
