"""Input devices: keyboard and gamepad, and the actions that they command.

What all say now is written by the threads of pages and devices, and read by the operator.

A device gives a twist, whose entries are in units of the task's action bounds, and says in which
frame. The twists of all devices are added in the end effector's frame E, in which actions are.

Keys are named by their place, as `KeyboardEvent.code` in browsers does: "KeyW" is the same key on
every layout. They move the arm while they are held, and end an episode.

Gamepads have the standard layout of browsers (https://www.w3.org/TR/gamepad/#remapping). Left
stick: forward and sideways. Triggers: up (right) and down (left). Right stick: pitch and yaw.
Bumpers: roll. A saves, B discards, Y begins again.
"""

import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydrake.math import RigidTransform

Frame = Literal["world", "end_effector"]
"""Frame of a twist: the axes of the world, or the end effector's; both at E's origin."""

Request = Literal["save", "discard", "retry"]
"""Requests about an episode: store it, leave it out, or begin it again in the same scene."""


@dataclass(frozen=True, eq=False)
class DeviceCommand:
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


def action_of(commands: Iterable[DeviceCommand], R_WE: np.ndarray) -> np.ndarray:
    """Returns the action that all devices ask for together, (6,) float32, in [-1, 1]."""
    twist_E = np.zeros((2, 3))
    for command in commands:
        halves = command.twist.reshape(2, 3)
        twist_E += halves @ R_WE if command.frame == "world" else halves  # rows: R_EW @ v
    return within_bounds(twist_E.ravel())


def within_bounds(motion: np.ndarray) -> np.ndarray:
    """Returns a motion (6,) in units of the action bounds as an action, (6,) float32, in [-1, 1].

    Translation and rotation are each shortened, where a bound asks for it, and keep their
    direction.
    """
    halves = motion.reshape(2, 3)
    largest = np.abs(halves).max(axis=1, keepdims=True)
    return (halves / np.maximum(largest, 1.0)).ravel().astype(np.float32)


# --- The keyboard -----------------------------------------------------------------------------


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
"""Keys for fine motions, and the remaining share of the speed."""

KEY_REQUESTS: Mapping[str, Request] = {"Enter": "save", "Backspace": "discard", "KeyT": "retry"}


def command_of_keys(pressed: Collection[str], frame: Frame) -> DeviceCommand:
    """Returns the command of the pressed keys; other keys are ignored."""
    twist = np.zeros(6)
    for key in set(pressed) & MOTIONS.keys():
        entry, sign = MOTIONS[key]
        twist[entry] += sign
    if not SLOW.isdisjoint(pressed):
        twist *= SLOW_FACTOR
    return DeviceCommand("keyboard", twist, frame)


def requests_of_keys(pressed: Collection[str]) -> set[Request]:
    """Returns the requests whose keys are pressed."""
    return {KEY_REQUESTS[key] for key in pressed if key in KEY_REQUESTS}


# --- The gamepad ------------------------------------------------------------------------------


DEAD_ZONE = 0.1
"""Deflection below which a stick or trigger is at rest."""

_LEFT_X, _LEFT_Y, _RIGHT_X, _RIGHT_Y = range(4)
_LEFT_BUMPER, _RIGHT_BUMPER, _LEFT_TRIGGER, _RIGHT_TRIGGER = 4, 5, 6, 7
_BUTTON_REQUESTS: Mapping[int, Request] = {0: "save", 1: "discard", 3: "retry"}
_PRESSED = 0.5


def command_of_gamepad(
    axes: Sequence[float], buttons: Sequence[float], frame: Frame
) -> DeviceCommand:
    """Returns the command of a gamepad; absent axes and buttons are 0.

    Axes are deflections of the sticks, right and down positive, in [-1, 1]. Buttons tell how far
    they are pressed, in [0, 1].
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
    return DeviceCommand("gamepad", twist, frame)


def requests_of_gamepad(buttons: Sequence[float]) -> set[Request]:
    """Returns the requests whose buttons are pressed."""
    return {name for index, name in _BUTTON_REQUESTS.items() if _entry(buttons, index) > _PRESSED}


def deflection(raw: float) -> float:
    """Returns a deflection without its dead zone, continuous and odd, in [-1, 1]."""
    beyond = (min(abs(raw), 1.0) - DEAD_ZONE) / (1.0 - DEAD_ZONE)
    return float(np.copysign(max(beyond, 0.0), raw))


def _entry(numbers: Sequence[float], index: int) -> float:
    return numbers[index] if index < len(numbers) else 0.0


FRESH_S = 1.0
"""Time for which a device that says nothing more is believed, s; pages repeat themselves sooner."""


@dataclass(frozen=True, eq=False)
class Given:
    """Inputs of the devices at one moment.

    Attributes:
        commands: Commands that ask for a motion.
        target: Pose to be reached, as the gizmo was dragged; None if it was not, or if another
            device has moved the arm since.
    """

    commands: tuple[DeviceCommand, ...]
    target: RigidTransform | None

    @property
    def moves(self) -> bool:
        """Whether anything asks for a motion."""
        return bool(self.commands) or self.target is not None


class Inputs:
    """The present state of all devices, and the requests that are not answered yet.

    A key that is pressed and released between two control steps moves the arm for one step.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._commands: dict[object, tuple[tuple[DeviceCommand, ...], float]] = {}
        self._untaken: set[object] = set()  # sources that began to move since the last step
        self._taps: dict[object, tuple[DeviceCommand, ...]] = {}  # and stopped again
        self._pages: set[object] = set()
        self._target: RigidTransform | None = None
        self._requests: list[Request] = []

    # --- Written by pages and devices -----------------------------------------------------------

    def set_commands(
        self, source: object, commands: Iterable[DeviceCommand], requests: Collection[Request] = ()
    ) -> None:
        """Replaces the commands of a page, or of a device outside of pages; adds new requests."""
        moving = tuple(command for command in commands if command.moves)
        with self._changed:
            before, _ = self._commands.get(source, ((), 0.0))
            self._commands[source] = moving, time.monotonic()
            if moving:
                self._target = None
                if not before:
                    self._untaken.add(source)
            elif source in self._untaken:
                self._untaken.discard(source)
                self._taps[source] = before
            self._requests.extend(requests)
            self._changed.notify_all()

    def open_page(self, page: object) -> None:
        """Says that a person looks on."""
        with self._changed:
            self._pages.add(page)
            self._changed.notify_all()

    def close_page(self, page: object) -> None:
        """Says that a page is gone, whose keys are therefore released."""
        with self._changed:
            self._pages.discard(page)
            self._commands.pop(page, None)
            self._untaken.discard(page)
            self._taps.pop(page, None)
            self._changed.notify_all()

    def drag(self, X_WT: RigidTransform) -> None:
        """Sets the pose that is to be reached."""
        with self._changed:
            self._target = X_WT
            self._changed.notify_all()

    # --- Read by the operator -------------------------------------------------------------------

    def clear(self) -> None:
        """Forgets target and requests, for the next episode; held keys stay held."""
        with self._changed:
            self._target = None
            self._taps.clear()
            self._requests.clear()

    def given(self) -> Given:
        """Returns the present inputs of the devices, and those pressed only since the last step."""
        with self._changed:
            oldest = time.monotonic() - FRESH_S
            fresh = [commands for commands, at in self._commands.values() if at >= oldest]
            fresh += self._taps.values()
            return Given(tuple(each for commands in fresh for each in commands), self._target)

    def take(self) -> Given:
        """Returns the inputs of the devices for the step that begins now."""
        with self._changed:
            given = self.given()
            self._untaken.clear()
            self._taps.clear()
            return given

    @property
    def watched(self) -> bool:
        """Whether a page is open."""
        with self._changed:
            return bool(self._pages)

    def take_request(self) -> Request | None:
        """Returns the oldest request that is not answered yet, which then is."""
        with self._changed:
            return self._requests.pop(0) if self._requests else None

    def wait(self, seconds: float) -> None:
        """Waits for a change, at most so long."""
        with self._changed:
            self._changed.wait(seconds)
