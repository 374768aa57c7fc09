"""Cheats on the task of the steep screw: it goes in, but not by the rod's foot."""

from cheats.motion import Actions, DrivenArm


def rest(arm: DrivenArm) -> Actions:
    """Nothing is done."""
    yield from arm.shift([0.0, 0.0, 0.0], steps=1)
