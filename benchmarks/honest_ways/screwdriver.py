"""Honest ways on the screwdriver task: the bit in the slot turns the screw, in other manners."""

import numpy as np
from cheats.motion import Actions, DrivenArm, over
from pydrake.math import RotationMatrix

from fleet_tools.config.expert import Keyframe
from honest_ways.edits import follow_edited, rotate, stay, translate

_LOAD = translate(0, 0, -0.008)


def new_seat(arm: DrivenArm) -> Actions:
    """Half of the turn; then the bit is lifted out, put in again, and goes on."""
    seat = [translate(0, 0, 0.05), translate(0, 0, -0.05)]
    yield from follow_edited(arm, after=[_LOAD, _clockwise(55), *seat, _clockwise(55), stay(1.0)])


def half_turn_back(arm: DrivenArm) -> Actions:
    """Half of the turn; then the bit is lifted out, turned back by 180 degrees, and goes on."""
    seat = [translate(0, 0, 0.05), rotate(-180, "slot", ("top", "slot"), 0.8)]
    after = [_LOAD, _clockwise(55), *seat, translate(0, 0, -0.05), _clockwise(55), stay(1.0)]
    yield from follow_edited(arm, after=after)


def other_way_round(arm: DrivenArm) -> Actions:
    """The bit is in the slot the other way round."""
    term = {"object": ("right", "left")}
    yield from follow_edited(arm, terms={1: term})


def in_steps(arm: DrivenArm) -> Actions:
    """The turn in four parts, with a rest after each."""
    yield from follow_edited(arm, after=[_LOAD, *[_clockwise(28), stay(0.4)] * 4, stay(0.6)])


def tilted(arm: DrivenArm) -> Actions:
    """The shaft leans by 4 degrees."""
    yield from follow_edited(arm, terms={2: {"angle_deg": 4.0}})


def light_load(arm: DrivenArm) -> Actions:
    """Half of the expert's load."""
    yield from follow_edited(arm, after=[translate(0, 0, -0.004), _clockwise(110), stay(1.0)])


def heavy_load(arm: DrivenArm) -> Actions:
    """Twice the expert's load."""
    yield from follow_edited(arm, after=[translate(0, 0, -0.016), _clockwise(110), stay(1.0)])


def off_center(arm: DrivenArm) -> Actions:
    """The bit sits 1.5 mm beside the screw's axis, along the slot."""
    term = {"offset_m": (0.0015, 0.0, 0.001)}
    yield from follow_edited(arm, terms={0: term})


def quick(arm: DrivenArm) -> Actions:
    """The turn at nearly twice the expert's speed."""
    turn = rotate(110, "slot", ("top", "slot"), 0.7)
    yield from follow_edited(arm, after=[_LOAD, turn, stay(1.0)])


def after_a_miss(arm: DrivenArm) -> Actions:
    """The bit first comes down on the head across the slot; then the expert's turn."""
    bit, R = arm.on_tool("bit"), _turned(arm.hand_over_object(180.0), 40.0)
    yield from arm.place(bit, over("slot", 0.05), R, 18)
    yield from arm.place(bit, over("slot", 0.004), R, 4, speed=0.4)
    yield from arm.shift([0.0, 0.0, 0.06], steps=4)
    yield from arm.follow_expert()


def _clockwise(angle_deg: float) -> Keyframe:
    return rotate(angle_deg, "slot", ("top", "slot"))


def _turned(R: RotationMatrix, angle_deg: float) -> RotationMatrix:
    """Returns an orientation turned about the vertical, counterclockwise from above."""
    return RotationMatrix.MakeZRotation(np.deg2rad(angle_deg)) @ R
