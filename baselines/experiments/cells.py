"""Computed values in files, so that an interrupted experiment can resume."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_tools.storage.atomic_files import write_file


@dataclass(frozen=True)
class Cells:
    """A folder of values, each stored as soon as it is computed.

    Attributes:
        folder: Created with the first value.
    """

    folder: Path

    def get_or_compute(
        self, settings: Mapping[str, Any], compute: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Returns a value from its file, or computes and stores it.

        Args:
            settings: All inputs of the value, as plain JSON data. The file stores them, and has
                their hash as name. A damaged file is replaced.
            compute: Returns the value, as plain JSON data.
        """
        text = json.dumps(settings, sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        path, settings = self.folder / f"{digest}.json", json.loads(text)  # lists for tuples
        stored = _read(path)
        if stored is not None and stored["settings"] == settings:
            return stored["value"]
        value = compute()
        self.folder.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps({"settings": settings, "value": value}, indent=1))
        return json.loads(json.dumps(value))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        stored = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):  # ValueError: damaged
        return None
    return stored if isinstance(stored, dict) and stored.keys() >= {"settings", "value"} else None
