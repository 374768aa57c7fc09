"""What all devices say now: written by the threads of pages and devices, read by the operator."""

import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pydrake.math import RigidTransform

from fleet_tools.studio.teleoperation.devices import DeviceCommand, Request

FRESH_S = 1.0
"""Time for which a device that says nothing more is believed, s; pages repeat themselves sooner."""


@dataclass(frozen=True, eq=False)
class Given:
    """What the devices say at one moment.

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
        """Replaces what a source says.

        Args:
            source: A page, or a device outside of pages.
            commands: The present state of its devices.
            requests: Requests that are new.
        """
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
        """Returns what the devices say now, and what they said since the last step alone."""
        with self._changed:
            oldest = time.monotonic() - FRESH_S
            fresh = [commands for commands, at in self._commands.values() if at >= oldest]
            fresh += self._taps.values()
            return Given(tuple(each for commands in fresh for each in commands), self._target)

    def take(self) -> Given:
        """Returns what the devices say for the step that begins now."""
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
