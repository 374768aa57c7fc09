"""Honest ways on the knife task: the blade parts the blocks, otherwise than the expert."""

from cheats.motion import Actions, DrivenArm

from honest_ways.edits import follow_edited, rotate, stay, translate

_SEAM = ("left_foot", "left")
"""Axis upwards, at the left block."""


def other_block(arm: DrivenArm) -> Actions:
    """The blade moves the right block instead of the left one."""
    yield from follow_edited(arm, after=[translate(0, -0.060, 0), stay(1.0)])


def turned_round(arm: DrivenArm) -> Actions:
    """The blade lies in the seam the other way round, so that the hand is at the seam's far end."""
    term = {"object": ("seam_end", "left_seam")}
    yield from follow_edited(arm, terms={1: term})


def both_blocks(arm: DrivenArm) -> Actions:
    """The blade moves the left block by half of the way, and then the right one."""
    yield from follow_edited(
        arm, after=[translate(0, 0.035, 0), translate(0, -0.070, 0), stay(1.0)]
    )


def in_steps(arm: DrivenArm) -> Actions:
    """The blade moves the block by 2 cm, rests, and goes on, three times."""
    yield from follow_edited(arm, after=[translate(0, 0.021, 0), stay(0.5)] * 3 + [stay(0.7)])


def sawing(arm: DrivenArm) -> Actions:
    """The blade goes to and fro along the seam while it moves the block."""
    strokes = [translate(0.01 * (-1) ** k, 0.012, 0) for k in range(5)]
    yield from follow_edited(arm, after=[*strokes, stay(1.0)])


def twist(arm: DrivenArm) -> Actions:
    """The blade turns in the seam, which pries the blocks open, and then moves the left one."""
    after = [rotate(12, "left_seam", _SEAM), translate(0, 0.05, 0), stay(1.0)]
    yield from follow_edited(arm, after=after)


def tilted(arm: DrivenArm) -> Actions:
    """The blade stands 6 degrees out of the vertical."""
    terms = {2: {"angle_deg": 6.0}}
    yield from follow_edited(arm, terms=terms)


def quick(arm: DrivenArm) -> Actions:
    """The blade moves the block twice as fast."""
    yield from follow_edited(arm, after=[translate(0, 0.060, 0, speed=0.6), stay(1.5)])


def farther(arm: DrivenArm) -> Actions:
    """The blade moves the block by 9 cm, more than is asked for."""
    yield from follow_edited(arm, after=[translate(0, 0.090, 0), stay(1.0)])


def farther_and_back(arm: DrivenArm) -> Actions:
    """The blade moves the block by 9 cm, and rests in the middle of the gap."""
    yield from follow_edited(
        arm, after=[translate(0, 0.090, 0), translate(0, -0.045, 0), stay(1.0)]
    )


def after_a_miss(arm: DrivenArm) -> Actions:
    """The blade comes down upon the left block first; then the expert's cut."""
    term = {"offset_m": (0.0, 0.02, 0.06), "tolerance_m": 0.002}
    after = [translate(0, 0, -0.005), translate(0, 0, 0.05)]
    yield from follow_edited(arm, terms={0: term}, after=after)
    yield from arm.follow_expert()
