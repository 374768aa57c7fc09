"""Honest ways on the pry bar task: the lever on the sill opens the lid, in other manners."""

from cheats.motion import Actions, DrivenArm

from fleet_tools.config.expert import Keyframe
from honest_ways.edits import follow_edited, rotate, stay, translate

_DOWN = translate(0, 0, -0.003)


def quick(arm: DrivenArm) -> Actions:
    """The whole stroke at twice the expert's speed."""
    yield from follow_edited(
        arm, after=[_DOWN, rotate(30, "sill", ("left", "right"), 0.8), stay(0.5)]
    )


def in_steps(arm: DrivenArm) -> Actions:
    """The stroke in four parts, with a rest after each."""
    yield from follow_edited(arm, after=[_DOWN, *[_lever(8), stay(0.4)] * 4])


def two_strokes(arm: DrivenArm) -> Actions:
    """Half of the stroke; then the bar goes back, is drawn out and put in again, and goes on."""
    again = [_lever(-15), translate(-0.03, 0, 0.001), translate(0.03, 0, -0.001)]
    yield from follow_edited(arm, after=[_DOWN, _lever(15), *again, _lever(30), stay(0.5)])


def without_laying_down(arm: DrivenArm) -> Actions:
    """The bar turns at once, 1 mm above the sill, on which it settles as it turns."""
    yield from follow_edited(arm, after=[_lever(15), _lever(17), stay(0.5)])


def beside_the_middle(arm: DrivenArm) -> Actions:
    """The bar is 15 mm to the left of the lid's middle."""
    term = {"offset_m": (0.0, 0.015, 0.001)}
    yield from follow_edited(arm, terms={0: term})


def less_deep(arm: DrivenArm) -> Actions:
    """The tip is 3 mm less deep under the lid."""
    term = {"offset_m": (-0.003, 0.0, 0.001)}
    yield from follow_edited(arm, terms={0: term})


def heavy_hand(arm: DrivenArm) -> Actions:
    """The bar is pressed on the sill with four times the expert's depth."""
    yield from follow_edited(
        arm, after=[translate(0, 0, -0.012), _lever(15), _lever(17), stay(0.5)]
    )


def _lever(angle_deg: float) -> Keyframe:
    return rotate(angle_deg, "sill", ("left", "right"))
