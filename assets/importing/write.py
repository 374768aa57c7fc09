"""The folder of an imported model, which is replaced only as long as nobody has edited it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from ..model import Model, files, replace_folder

RECORD = "import.json"
"""Names every file of the folder with its hash, and says how it was made."""


def contents(model: Model, how: dict) -> dict[str, bytes]:
    """The model's files, and the record of the import; a pure function of its arguments."""
    written = files(model)
    hashes = {path: _hash(content) for path, content in written.items()}
    record = json.dumps({"import": how, "files": hashes}, indent=2, sort_keys=True) + "\n"
    return {**written, RECORD: record.encode()}


def write(model: Model, directory: Path, how: dict) -> None:
    """Writes the folder, whole or not at all.

    Args:
        model: As imported.
        directory: New, empty, or written by an import and unedited since.
        how: For the record: plain data.

    Raises:
        FileExistsError: The directory holds something else; it is left as it is.
    """
    foreign = edited(directory)
    if foreign:
        raise FileExistsError(
            f"{directory} holds what this program did not write ({', '.join(foreign[:5])}); it is "
            "left as it is. Choose another --name or --output, or move the folder away."
        )
    replace_folder(directory, contents(model, how))


def edited(directory: Path) -> list[str]:
    """Paths in a directory that no import wrote, or that were edited or removed since."""
    if directory.is_file():
        return [directory.name]
    found = {
        path.relative_to(directory).as_posix(): _hash(path.read_bytes())
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
    try:
        known = json.loads((directory / RECORD).read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return sorted(found)
    found.pop(RECORD)
    return sorted(p for p in found.keys() | known.keys() if found.get(p) != known.get(p))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
