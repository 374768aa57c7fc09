"""Results in files, so that an interrupted experiment resumes where it stopped."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_tools.storage.atomic_files import write_file

Settings = Mapping[str, Any]
"""Everything on which a result depends, as plain JSON data."""


@dataclass(frozen=True)
class ResultCache:
    """A folder of results, each stored as soon as it is computed.

    Attributes:
        folder: Created with the first result.
    """

    folder: Path

    def get_or_compute(
        self, name: str, settings: Settings, compute: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Returns a result from its file, or computes and stores it.

        A file with other settings, or a damaged one, is replaced.

        Args:
            name: File name of the result, without its suffix.
            settings: Settings on which the result depends.
            compute: Returns the result, as plain JSON data.
        """
        path = self.folder / f"{name}.json"
        settings = json.loads(json.dumps(settings))  # with lists for tuples
        stored = _read(path)
        if stored is not None and stored["settings"] == settings:
            return stored["value"]
        value = compute()
        self.folder.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps({"settings": settings, "value": value}, indent=1))
        return value


def _read(path: Path) -> dict[str, Any] | None:
    try:
        stored = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):  # ValueError: damaged
        return None
    return stored if isinstance(stored, dict) and stored.keys() >= {"settings", "value"} else None
