"""Honest ways on the spatula task: the blade lifts and carries the slab, unlike the expert."""

import numpy as np
from cheats.motion import Actions, DrivenArm, Target
from pydrake.math import RotationMatrix

from fleet_tools.sim.world_state import WorldState
from honest_ways.edits import advance, edited, follow_edited, over_place, stay, translate

_AXIS = ("heel", "edge")
_TO_PLACE = over_place("face", "base")
_LIFT = [translate(0, 0, 0.09, frame="world"), _TO_PLACE, stay(1.7)]


def by_the_side(arm: DrivenArm) -> Actions:
    """The blade goes under the slab sideways."""
    before = [translate(-0.14, 0, 0.08, frame="world"), translate(-0.14, 0, 0, frame="world")]
    after = [translate(0.03, 0, 0, frame="world"), *_LIFT]
    yield from follow_edited(arm, before=before, after=after)


def half_left(arm: DrivenArm) -> Actions:
    """The blade points half to the left and half away from the robot."""
    yield from _along(arm, (0.7, 0.7, 0.0))


def half_back(arm: DrivenArm) -> Actions:
    """The blade points half to the left and half towards the robot."""
    yield from _along(arm, (-0.7, 0.7, 0.0))


def off_center(arm: DrivenArm) -> Actions:
    """The slab lies 2 cm in front of the blade's middle."""
    after = [advance(_AXIS, -0.01), stay(0.33), *_LIFT]
    yield from follow_edited(arm, after=after)


def in_stages(arm: DrivenArm) -> Actions:
    """The slab is lifted by 3 cm, held, and lifted further."""
    lift = translate(0, 0, 0.03, frame="world")
    stages = [lift, stay(0.5), lift, stay(0.5), lift]
    after = [advance(_AXIS, 0.02), stay(0.33), *stages, _TO_PLACE, stay(1.7)]
    yield from follow_edited(arm, after=after)


def carried_aside(arm: DrivenArm) -> Actions:
    """The slab is lifted, carried 10 cm aside, and brought to its place from there."""
    aside = translate(0, -0.10, 0, frame="world")
    after = [advance(_AXIS, 0.02), stay(0.33), _LIFT[0], aside, _TO_PLACE, stay(1.7)]
    yield from follow_edited(arm, after=after)


def quick(arm: DrivenArm) -> Actions:
    """The blade goes under the slab, lifts and carries it, twice as fast."""
    up = translate(0, 0, 0.09, frame="world", speed=0.6)
    carry = over_place("face", "base", speed=0.6)
    after = [advance(_AXIS, 0.02), up, carry, stay(2.0)]
    yield from follow_edited(arm, speed=0.6, after=after)


def edge_first(arm: DrivenArm) -> Actions:
    """The blade goes under the slab tilted, edge first, and is levelled while it lifts."""
    edge, face, level = arm.on_tool("edge"), arm.on_tool("face"), arm.level_hand(90.0)
    tilted = level @ _tilt(-7.0)
    yield from arm.place(edge, _before_slab(0.10, 0.04), tilted, 25, within_m=0.01)
    yield from arm.place(edge, _before_slab(0.08, 0.0), tilted, 8, speed=0.5, within_m=0.002)
    yield from arm.place(edge, _before_slab(-0.045, -0.001), tilted, 14, speed=0.35)
    goal = arm.state.p_W_tool["face"] * [1.0, 1.0, 0.0]
    for up_m, steps in ((0.01, 6), (0.10, 14)):
        target = goal + np.array([0.0, 0.0, up_m])
        yield from arm.place(face, lambda _, p=target: p, level, steps, speed=0.3)
    lies = arm.state.p_W_object["base"] - arm.state.p_W_tool["face"]
    place = (arm.state.p_W_place - lies) * [1.0, 1.0, 0.0] + np.array([0.0, 0.0, 0.10])
    yield from arm.place(face, lambda _: place, level, 20, speed=0.3)


def sloped(arm: DrivenArm) -> Actions:
    """The slab is lifted to its place, and the blade then slopes by 10 degrees towards the hand."""
    yield from follow_edited(arm)
    R, face = arm.state.X_WE.rotation(), arm.on_tool("face")
    goal = arm.state.p_W_tool["face"].copy()
    yield from arm.place(face, lambda _: goal, R @ _tilt(10.0), 8, speed=0.3)


def after_a_miss(arm: DrivenArm) -> Actions:
    """The blade's edge first meets the slab's rim 6 mm above the table and shoves it a little."""
    term = {"offset_m": (0.0, 0.0, 0.006)}
    high = edited(arm.env.task.expert, terms={0: term}, after=[])
    yield from arm.follow_expert(high, until=lambda state: state.in_contact("tool", "object"))
    forwards = arm.state.p_W_tool["edge"] - arm.state.p_W_tool["heel"]
    forwards *= np.array([1.0, 1.0, 0.0]) / np.linalg.norm(forwards[:2])
    yield from arm.shift(0.02 * forwards, steps=4, speed=0.3)
    yield from arm.shift(-0.06 * forwards, steps=6)
    yield from arm.shift([0.0, 0.0, 0.06], steps=3)
    yield from arm.follow_expert()


def _along(arm: DrivenArm, direction: tuple[float, float, float]) -> Actions:
    """Acts like the expert, with the blade along a direction of the world."""
    yield from follow_edited(arm, terms={2: {"world": direction}})


def _tilt(angle_deg: float) -> RotationMatrix:
    """Returns a turn in the hand's frame that raises the blade's edge."""
    return RotationMatrix.MakeYRotation(np.deg2rad(angle_deg))


def _before_slab(outwards_m: float, up_m: float) -> Target:
    """Returns a target on the side of the slab from which the blade comes."""

    def target(state: WorldState) -> np.ndarray:
        return state.p_W_object["base"] * [1.0, 1.0, 0.0] + [0.0, -outwards_m, up_m]

    return target
