"""Cells of a table, each a file once it is computed, so that work goes on where it stopped."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_tools.storage.atomic_files import whole

Settings = dict[str, Any]
"""All that a cell's value follows from, as JSON has it."""


@dataclass(frozen=True)
class Cells:
    """A folder of cells.

    Attributes:
        folder: Made when the first cell is stored.
    """

    folder: Path

    def get(
        self, name: str, settings: Settings, compute: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """The value of a cell, from its file, or computed and stored.

        A file that follows from other settings is replaced.

        Args:
            name: Of the file.
            settings: What the value follows from.
            compute: Returns the value, as JSON has it.
        """
        path = self.folder / f"{name}.json"
        settings = json.loads(json.dumps(settings))
        stored = _read(path)
        if stored is not None and stored["settings"] == settings:
            return stored["value"]
        value = compute()
        self.folder.mkdir(parents=True, exist_ok=True)
        with whole(path) as aside:
            aside.write_text(json.dumps({"settings": settings, "value": value}, indent=1))
        return value


def _read(path: Path) -> dict[str, Any] | None:
    try:
        stored = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):  # ValueError: no JSON; it is computed anew
        return None
    return stored if isinstance(stored, dict) and stored.keys() >= {"settings", "value"} else None
