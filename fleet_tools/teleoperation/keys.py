"""The keyboard: keys that move the arm while they are held, and keys that end an episode.

Keys are named by their place, as `KeyboardEvent.code` in browsers does: "KeyW" is the same key on
every layout.
"""

from collections.abc import Collection, Mapping

import numpy as np

from fleet_tools.teleoperation.commands import Command, Frame, Request

MOTIONS: Mapping[str, tuple[int, float]] = {
    "KeyW": (0, 1.0),
    "KeyS": (0, -1.0),
    "KeyA": (1, 1.0),
    "KeyD": (1, -1.0),
    "KeyE": (2, 1.0),
    "KeyQ": (2, -1.0),
    "KeyO": (3, 1.0),
    "KeyU": (3, -1.0),
    "KeyI": (4, 1.0),
    "KeyK": (4, -1.0),
    "KeyJ": (5, 1.0),
    "KeyL": (5, -1.0),
}
"""By key, an entry of the twist and its sign: x forward, y left, z up, and rotations about them."""

SLOW, SLOW_FACTOR = frozenset({"ShiftLeft", "ShiftRight"}), 0.25
"""Keys for fine motions, and what is left of the speed."""

REQUESTS: Mapping[str, Request] = {"Enter": "save", "Backspace": "discard", "KeyT": "retry"}


def command_of(pressed: Collection[str], frame: Frame) -> Command:
    """Returns what the pressed keys ask for; other keys mean nothing.

    Args:
        pressed: Names of the keys.
        frame: Frame of the motion.
    """
    twist = np.zeros(6)
    for key in set(pressed) & MOTIONS.keys():
        entry, sign = MOTIONS[key]
        twist[entry] += sign
    if not SLOW.isdisjoint(pressed):
        twist *= SLOW_FACTOR
    return Command("keyboard", twist, frame)


def requests_of(pressed: Collection[str]) -> set[Request]:
    """Returns the requests whose keys are pressed."""
    return {REQUESTS[key] for key in pressed if key in REQUESTS}
