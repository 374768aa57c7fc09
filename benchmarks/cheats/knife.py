"""Cheats on the knife task: the blocks are parted, but not by the blade."""

from collections.abc import Callable

import numpy as np
from pydrake.math import RotationMatrix

from cheats.motion import KNUCKLE, Actions, DrivenArm, Target, hand, other_side
from fleet_tools.sim.world_state import WorldState


def knuckle(arm: DrivenArm) -> Actions:
    """The hand pushes the left block along the seam; then the blade hovers in between."""
    yield from _push_with_knuckle(arm, "left")
    yield from _hover(arm)


def second_block(arm: DrivenArm) -> Actions:
    """The hand pushes the right block along the seam; then the blade hovers in between."""
    yield from _push_with_knuckle(arm, "right")
    yield from _hover(arm)


def throw(arm: DrivenArm) -> Actions:
    """The hand knocks the left block along the seam; then the blade hovers in between."""
    yield from _push_with_knuckle(arm, "left", run_up_m=0.16, speed=1.0)
    yield from _hover(arm)


def fingers(arm: DrivenArm) -> Actions:
    """A finger pushes the left block along the seam; then the blade hovers in between."""
    R = hand(arm_yaw(arm) + 90, tilt_deg=25)
    yield from _push(arm, np.array([0.0, -0.03, 0.0]), R, "left", height_m=0.055)
    yield from _hover(arm)


def butt(arm: DrivenArm) -> Actions:
    """The end of the handle pushes the left block along the seam; then the blade hovers."""
    R = hand(arm_yaw(arm) + 90, tilt_deg=45)
    yield from _push(arm, arm.on_handle(-0.06, -0.015), R, "left")
    yield from _hover(arm)


def grip(arm: DrivenArm) -> Actions:
    """The handle beside the fingers pushes the left block along the seam; then the blade hovers."""
    R = hand(arm_yaw(arm) + 90)
    point = arm.on_handle(0.035, -0.015)
    yield from _push(arm, point, R, "left", height_m=arm.on_tool("edge")[2] + 0.006)
    yield from _hover(arm)


def nine_tenths(arm: DrivenArm) -> Actions:
    """The hand does nine tenths, and the blade the rest."""
    yield from _push_with_knuckle(arm, "left", until=0.9)
    across, R = _across(arm), hand(arm_yaw(arm))
    edge = arm.on_tool("edge")

    def beside_left(up_m: float, outwards_m: float) -> Target:
        def target(state: WorldState) -> np.ndarray:
            return state.p_W_object["left_seam"] + outwards_m * across + [0.0, 0.0, up_m]

        return target

    yield from arm.place(edge, beside_left(0.10, -0.015), R, 16)
    yield from arm.place(edge, beside_left(0.012, -0.015), R, 6)
    yield from arm.place(edge, beside_left(0.012, 0.03), R, 10, speed=0.3, until=arm.done())
    yield from _hover(arm)


def touch_first(arm: DrivenArm) -> Actions:
    """The blade touches the left block, the hand pushes it, and the blade hovers in between."""
    edge, R = arm.on_tool("edge"), hand(arm_yaw(arm))
    touches = lambda state: state.in_contact("tool", "object/left")  # noqa: E731
    yield from arm.place(edge, _above(arm, "left", 0.03), R, 12)
    yield from arm.place(edge, _above(arm, "left", -0.01), R, 6, speed=0.2, until=touches)
    yield from _push_with_knuckle(arm, "left")
    yield from _hover(arm)


def closed_again(arm: DrivenArm) -> Actions:
    """Twice the blade parts the blocks partly, and the hand closes them; then it parts them.

    The blade hovers in between.
    """
    across, R = _across(arm), hand(arm_yaw(arm), roll_deg=60)
    touch = lambda state: state.in_contact("object/left", "object/right")  # noqa: E731

    def beside(off_m: float, up_m: float) -> Target:
        goal = arm.state.p_W_object["left"] + off_m * across
        goal[2] = 0.8 * goal[2] + up_m
        return lambda _: goal

    for _ in range(2):
        yield from arm.follow_expert(until=arm.done(0.7))
        yield from arm.shift([0.0, 0.0, 0.10], steps=5)
        yield from arm.place(KNUCKLE, beside(0.09, 0.10), R, 20, within_m=0.02)
        yield from arm.place(KNUCKLE, beside(0.09, 0.0), R, 6)
        yield from arm.place(KNUCKLE, beside(-0.05, 0.0), R, 20, speed=0.4, until=touch)
        yield from arm.shift(0.03 * across + [0.0, 0.0, 0.12], steps=5)
    yield from _push_with_knuckle(arm, "left")
    yield from _hover(arm)


def from_the_end(arm: DrivenArm) -> Actions:
    """The flat of the blade, at the end of the seam, shoves the left block along it; it hovers."""
    tip, back = arm.on_tool("tip"), arm.on_tool("heel") - arm.on_tool("tip")
    state = arm.state.p_W_object
    to_seam = float(np.linalg.norm(state["left_seam"] - state["left_foot"]))
    point = tip + (to_seam - 0.006) * back / np.linalg.norm(back)
    yield from _push(arm, point, hand(arm_yaw(arm) - 90), "left", height_m=0.008)
    yield from _hover(arm)


def arm_yaw(arm: DrivenArm) -> float:
    """Returns the direction of the seam, degrees."""
    return arm.env.scene.object_pose.rpy_deg[2]


def _along(arm: DrivenArm) -> np.ndarray:
    return arm.env.scene.object_pose.to_transform().rotation() @ [1.0, 0.0, 0.0]


def _across(arm: DrivenArm) -> np.ndarray:
    """Returns the direction from the right block to the left one at the start, (3,)."""
    return arm.env.scene.object_pose.to_transform().rotation() @ [0.0, 1.0, 0.0]


def _above(arm: DrivenArm, block: str, above_m: float) -> Target:
    """Returns a target above the middle of a block's top."""

    def target(state: WorldState) -> np.ndarray:
        middle, foot = state.p_W_object[block], state.p_W_object[f"{block}_foot"]
        return middle + (middle - foot) + [0.0, 0.0, above_m]

    return target


def _push_with_knuckle(
    arm: DrivenArm,
    block: str,
    *,
    run_up_m: float = 0.08,
    height: float = 0.8,
    speed: float = 0.5,
    until: float = 1.0,
) -> Actions:
    """Pushes a block along the seam with the edge of the hand.

    Args:
        arm: The arm.
        block: "left" or "right".
        run_up_m: Distance from which it starts.
        height: Height of the push above the block's middle.
        speed: Largest entry of the actions while it pushes.
        until: Fraction of the deed at which it ends.
    """
    sign = 1 if block == "left" else -1
    R = hand(arm_yaw(arm), roll_deg=60 * sign)
    p_E = KNUCKLE if block == "left" else other_side(KNUCKLE)
    height_m = height * arm.state.p_W_object[block][2]
    return _push(arm, p_E, R, block, run_up_m=run_up_m, height_m=height_m, speed=speed, until=until)


def _push(
    arm: DrivenArm,
    p_E: np.ndarray,
    R_WE: RotationMatrix,
    block: str,
    *,
    run_up_m: float = 0.08,
    height_m: float = 0.03,
    speed: float = 0.5,
    until: float = 1.0,
) -> Actions:
    along, block_0 = _along(arm), arm.state.p_W_object[block]

    def at(along_m: float, up_m: float) -> Callable[[WorldState], np.ndarray]:
        goal = np.array([*block_0[:2], height_m + up_m]) + along_m * along
        return lambda _: goal

    yield from arm.place(p_E, at(-run_up_m, 0.10), R_WE, 20, within_m=0.02)
    yield from arm.place(p_E, at(-run_up_m, 0.0), R_WE, 6)
    yield from arm.place(p_E, at(0.13, 0.0), R_WE, 16, speed=speed, until=arm.done(until))
    if until >= 1.0:
        yield from arm.shift(0.01 * along, steps=2)  # blocks give a little
    yield from arm.shift(np.array([0.0, 0.0, 0.12]) - 0.04 * along, steps=5)


def _hover(arm: DrivenArm) -> Actions:
    """Lowers the blade into the gap, and holds it still there."""
    seams = arm.state.p_W_object
    gap = seams["left_seam"] - seams["right_seam"]
    middle = (seams["left_seam"] + seams["right_seam"]) / 2
    yaw = np.rad2deg(np.arctan2(gap[1], gap[0]))
    edge = arm.on_tool("edge")
    R = min(  # on the side where the hand is nearer to the robot
        (hand(yaw + turn) for turn in (90, -90)),
        key=lambda R: float(np.linalg.norm((middle - R @ edge)[:2])),
    )
    yield from arm.place(edge, lambda _: middle + np.array([0.0, 0.0, 0.12]), R, 20, within_m=0.01)
    yield from arm.place(edge, lambda _: middle + np.array([0.0, 0.0, 0.025]), R, 8)
