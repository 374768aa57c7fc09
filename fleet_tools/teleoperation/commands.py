"""What a device asks of the arm, and the action that follows.

A device gives a twist, whose entries are in units of the task's action bounds, and says in which
frame. The twists of all devices are added in the end effector's frame E, in which actions are.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

Frame = Literal["world", "end_effector"]
"""Frame of a twist: the axes of the world, or those of the end effector; both at E's origin."""

Request = Literal["save", "discard", "retry"]
"""What is to become of an episode: stored, left out, or begun again in the same scene."""


@dataclass(frozen=True, eq=False)
class Command:
    """The present state of one device.

    Attributes:
        device: Name of the device.
        twist: (6,), translation, then rotation vector, in [-1, 1].
        frame: Frame of the twist.
    """

    device: str
    twist: np.ndarray
    frame: Frame

    @property
    def moves(self) -> bool:
        """Whether it asks for a motion."""
        return bool(self.twist.any())


def action_of(commands: Iterable[Command], R_WE: np.ndarray) -> np.ndarray:
    """Returns the action that all devices ask for together, (6,) float32, in [-1, 1].

    Args:
        commands: The state of each device.
        R_WE: (3, 3), orientation of the end effector in the world.
    """
    twist_E = np.zeros((2, 3))
    for command in commands:
        halves = command.twist.reshape(2, 3)
        twist_E += halves @ R_WE if command.frame == "world" else halves  # rows: R_EW @ v
    return within_bounds(twist_E.ravel())


def within_bounds(motion: np.ndarray) -> np.ndarray:
    """Returns a motion as an action, (6,) float32, in [-1, 1].

    Translation and rotation are each shortened, where a bound asks for it, and keep their
    direction.

    Args:
        motion: (6,), translation, then rotation vector, in units of the action bounds.
    """
    halves = motion.reshape(2, 3)
    largest = np.abs(halves).max(axis=1, keepdims=True)
    return (halves / np.maximum(largest, 1.0)).ravel().astype(np.float32)
