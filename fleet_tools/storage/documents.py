"""What is kept beside data: a JSON file that says what they are, and a line for each of them."""

import json
from pathlib import Path
from typing import TypeVar

from fleet_tools.config.values import Value, parse
from fleet_tools.errors import ConfigError, FleetToolsError

Document = TypeVar("Document", bound=Value)


def read_document(
    path: Path, kind: type[Document], version: int, error: type[FleetToolsError], missing: str
) -> Document:
    """Reads a JSON file that has a schema version.

    Args:
        path: Of the file.
        kind: What it holds.
        version: The schema version that can be read.
        error: Of what is raised.
        missing: What to say if there is no such file.

    Raises:
        FleetToolsError: It is missing, damaged or of another version.
    """
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        raise error(missing) from None
    except (OSError, ValueError) as raised:
        raise error(f"{path} is damaged: {raised}. Restore it from a copy.") from raised
    found = data.get("schema_version") if isinstance(data, dict) else None
    if found != version:
        raise error(
            f"{path} has schema version {found!r}; this version of Fleet-Tools reads {version}. "
            "Read it with the version that wrote it."
        )
    try:
        return parse(kind, data, str(path))
    except ConfigError as raised:
        raise error(f"{raised}\nRestore it from a copy.") from raised


def read_lines(
    path: Path, kind: type[Document], error: type[FleetToolsError], without: str = ""
) -> tuple[list[Document], int]:
    """Reads the whole lines of a `fleet_tools.storage.append_log.Journal`; a torn last one never counted.

    Args:
        path: Of the file.
        kind: What a line holds.
        error: Of what is raised.
        without: What nobody knows without it, to say if it cannot be read.

    Returns:
        What the lines hold, and how many bytes they take.

    Raises:
        FleetToolsError: It is missing or damaged.
    """
    try:
        content = path.read_bytes()
    except OSError as raised:
        raise error(
            f"{path} cannot be read: {raised.strerror}. Restore it from a copy{without}."
        ) from raised
    whole = content[: content.rfind(b"\n") + 1]
    lines = []
    for number, line in enumerate(whole.splitlines(), 1):
        place = f"{path}:{number}"
        try:
            lines.append(parse(kind, json.loads(line), place))
        except ValueError as raised:  # ConfigError is one, too
            raise error(f"{place} is damaged: {raised} Restore it from a copy.") from raised
    return lines, len(whole)
