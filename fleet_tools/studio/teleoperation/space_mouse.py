"""The SpaceMouse: six axes and two buttons, read by the library pyspacemouse."""

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from fleet_tools.errors import ConfigError
from fleet_tools.studio.teleoperation.devices import DeviceCommand, Inputs, Request, deflection
from fleet_tools.utils.libraries import require

_AXES = ("x", "y", "z", "roll", "pitch", "yaw")
_READ_S, _SAY_S = 0.002, 0.02
"""Times between two reads, and between two states that are passed on, s. A device sends its axes in
several reports."""


class SpaceMouseState(Protocol):
    """What pyspacemouse reads: axes in [-1, 1], x forward, y left, z up; and buttons, 0 or 1."""

    x: float
    y: float
    z: float
    roll: float
    pitch: float
    yaw: float
    buttons: list[int]


def command_of_spacemouse(state: SpaceMouseState) -> DeviceCommand:
    """Returns what the device asks for, in the world's axes."""
    return DeviceCommand(
        "spacemouse", np.array([deflection(getattr(state, a)) for a in _AXES]), "world"
    )


def requests_of_spacemouse(state: SpaceMouseState) -> set[Request]:
    """Returns the requests whose buttons are pressed: left saves, right begins again."""
    names: tuple[Request, ...] = ("save", "retry")
    return {name for name, pressed in zip(names, state.buttons, strict=False) if pressed}


class SpaceMouse:
    """The first SpaceMouse that is connected, read by a thread; a context manager.

    Args:
        inputs: Receives its state.

    Raises:
        MissingLibraryError: The library is absent.
        ConfigError: No device is connected, or it cannot be opened.
    """

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._device = _open_spacemouse()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._read, name="spacemouse", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Releases the device."""
        self._closing.set()
        self._thread.join()
        self._device.close()

    def __enter__(self) -> "SpaceMouse":
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes it."""
        self.close()

    def _read(self) -> None:
        read: Callable[[], SpaceMouseState] = self._device.read
        before, said = set[Request](), 0.0
        while not self._closing.wait(_READ_S):
            state, now = read(), time.monotonic()
            if now >= said + _SAY_S:
                requests, said = requests_of_spacemouse(state), now
                self._inputs.set_commands(
                    "spacemouse", [command_of_spacemouse(state)], requests - before
                )
                before = requests


def _open_spacemouse() -> Any:
    library = require("pyspacemouse", "read a SpaceMouse")
    try:
        return library.open(axis_convention=library.AxisConvention.ROS)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"No SpaceMouse can be opened: {error} Connect one, and give yourself access to its "
            "/dev/hidraw file; or leave --spacemouse out."
        ) from error
