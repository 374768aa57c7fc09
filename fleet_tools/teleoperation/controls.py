"""What a page says of its devices: checked, whoever sends it."""

import json
from typing import Annotated, Literal

import pydantic

from fleet_tools.config.values import Number, Value, parse
from fleet_tools.errors import ConfigError
from fleet_tools.teleoperation import gamepad, keys
from fleet_tools.teleoperation.commands import Command, Frame, Request

MAX_MESSAGE = 4096
"""Largest message of a page, bytes."""

_Numbers = Annotated[tuple[Number, ...], pydantic.Field(max_length=32)]


class GamepadState(Value):
    """A gamepad in the standard layout, see `fleet_tools.teleoperation.gamepad`."""

    axes: _Numbers
    buttons: _Numbers


class Controls(Value):
    """The present state of a page's devices.

    Attributes:
        keys: Names of the pressed keys.
        gamepad: The gamepad; None without one.
        frame: Frame of their motions.
        clicked: Request whose button was clicked, if any.
    """

    type: Literal["controls"] = "controls"
    keys: Annotated[frozenset[str], pydantic.Field(max_length=32)] = frozenset()
    gamepad: GamepadState | None = None
    frame: Frame = "world"
    clicked: Request | None = None

    def commands(self) -> list[Command]:
        """Returns what each device asks for."""
        found = [keys.command_of(self.keys, self.frame)]
        if self.gamepad is not None:
            found.append(gamepad.command_of(self.gamepad.axes, self.gamepad.buttons, self.frame))
        return found

    def requests(self, before: "Controls") -> set[Request]:
        """Returns the requests whose key or button was pressed since an earlier state."""
        clicked = set() if self.clicked is None else {self.clicked}
        return clicked | (self._held_requests() - before._held_requests())

    def _held_requests(self) -> set[Request]:
        held = keys.requests_of(self.keys)
        return held | (set() if self.gamepad is None else gamepad.requests_of(self.gamepad.buttons))


def read_controls(message: str | bytes) -> Controls:
    """Reads a message of a page.

    Raises:
        ConfigError: It is none.
    """
    try:
        content = json.loads(message)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"A message of a page is JSON: {error}") from None
    return parse(Controls, content, "A message of a page")
