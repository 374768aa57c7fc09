"""The gamepad, in the standard layout of browsers (https://www.w3.org/TR/gamepad/#remapping).

Left stick: forward and sideways. Triggers: up (right) and down (left). Right stick: pitch and yaw.
Bumpers: roll. A saves, B discards, Y begins again.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fleet_tools.teleoperation.commands import Command, Frame, Request

DEAD_ZONE = 0.1
"""Deflection below which a stick or trigger is at rest."""

_LEFT_X, _LEFT_Y, _RIGHT_X, _RIGHT_Y = range(4)
_LEFT_BUMPER, _RIGHT_BUMPER, _LEFT_TRIGGER, _RIGHT_TRIGGER = 4, 5, 6, 7
_REQUESTS: Mapping[int, Request] = {0: "save", 1: "discard", 3: "retry"}
_PRESSED = 0.5


def command_of(axes: Sequence[float], buttons: Sequence[float], frame: Frame) -> Command:
    """Returns what a gamepad asks for.

    Args:
        axes: Deflections of the sticks, right and down positive, in [-1, 1]; absent ones are 0.
        buttons: How far each button is pressed, in [0, 1]; absent ones are 0.
        frame: Frame of the motion.
    """

    def axis(index: int) -> float:
        return deflection(_entry(axes, index))

    def button(index: int) -> float:
        return max(deflection(_entry(buttons, index)), 0.0)

    twist = np.array(
        [
            -axis(_LEFT_Y),
            -axis(_LEFT_X),
            button(_RIGHT_TRIGGER) - button(_LEFT_TRIGGER),
            button(_RIGHT_BUMPER) - button(_LEFT_BUMPER),
            -axis(_RIGHT_Y),
            -axis(_RIGHT_X),
        ]
    )
    return Command("gamepad", twist, frame)


def requests_of(buttons: Sequence[float]) -> set[Request]:
    """Returns the requests whose buttons are pressed."""
    return {name for index, name in _REQUESTS.items() if _entry(buttons, index) > _PRESSED}


def deflection(raw: float) -> float:
    """Returns a deflection without its dead zone, continuous and odd, in [-1, 1]."""
    beyond = (min(abs(raw), 1.0) - DEAD_ZONE) / (1.0 - DEAD_ZONE)
    return float(np.copysign(max(beyond, 0.0), raw))


def _entry(numbers: Sequence[float], index: int) -> float:
    return numbers[index] if index < len(numbers) else 0.0
