"""Folders of imported models, which are replaced only as long as nobody has edited them."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet_tools.assets.model_description import ModelDescription
from fleet_tools.assets.model_folder import model_files, read_files
from fleet_tools.storage.atomic_files import replace_folder
from fleet_tools.storage.strict_json import loads

RECORD = "import.json"
"""File that lists every other file of the folder with its hash, and describes the import."""


def imported_files(model: ModelDescription, report: Mapping[str, Any]) -> dict[str, bytes]:
    """Returns the content of each file of the folder by its relative path.

    Args:
        model: The imported model.
        report: Description of the import, plain JSON data.
    """
    files = model_files(model)
    hashes = {path: _hash(content) for path, content in files.items()}
    record = json.dumps({"import": dict(report), "files": hashes}, indent=2, sort_keys=True) + "\n"
    return {**files, RECORD: record.encode()}


def write_imported(model: ModelDescription, folder: Path, report: Mapping[str, Any]) -> None:
    """Writes the folder of an imported model, whole or not at all.

    Args:
        model: The imported model.
        folder: A new or empty folder, or one that an import wrote and nobody has edited since.
        report: Description of the import, plain JSON data.

    Raises:
        FileExistsError: The folder holds other files; it is left unchanged.
    """
    edited = edited_files(folder)
    if edited:
        raise FileExistsError(
            f"{folder} holds files that this program did not write ({', '.join(edited[:5])}), and "
            "is left unchanged. Choose another --name or --output, or move the folder away."
        )
    replace_folder(folder, imported_files(model, report))


def edited_files(folder: Path) -> list[str]:
    """Returns relative paths that no import wrote, or that were edited or removed since."""
    if folder.is_file():
        return [folder.name]
    found = {path: _hash(content) for path, content in read_files(folder).items()}
    try:
        written = dict(loads((folder / RECORD).read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return sorted(found)
    found.pop(RECORD)
    return sorted(p for p in found.keys() | written.keys() if found.get(p) != written.get(p))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
