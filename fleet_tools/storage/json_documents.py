"""JSON documents with a schema version, and logs of JSON records."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fleet_tools.config.values import Value, parse
from fleet_tools.errors import ConfigError, FleetToolsError
from fleet_tools.storage.strict_json import load, loads

V = TypeVar("V", bound=Value)

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
"""Rewrites plain data of one schema version into the next version's form."""

VERSION_KEY = "schema_version"


def read_version(path: Path, error: type[FleetToolsError]) -> Any:
    """Returns the schema version of a document, whatever else it holds; None if it names none.

    Raises:
        FleetToolsError: The document is missing or damaged.
    """
    data = _read_json(path, error)
    return data.get(VERSION_KEY) if isinstance(data, dict) else None


def read_document(
    path: Path,
    kind: type[V],
    version: int,
    error: type[FleetToolsError],
    upgrades: Mapping[int, Upgrade] | None = None,
) -> V:
    """Reads a JSON document.

    Args:
        path: Path of the file.
        kind: Class of its content.
        version: Present schema version.
        error: Class of the errors raised.
        upgrades: By earlier version, how its data is brought to the next one.

    Raises:
        FleetToolsError: The document is missing, damaged or of an unknown version.
    """
    data = _read_json(path, error)
    found = data.get(VERSION_KEY) if isinstance(data, dict) else None
    while found != version:
        upgrade = (upgrades or {}).get(found) if isinstance(found, int) else None
        if upgrade is None:
            raise error(
                f"{path} has schema version {found!r}; this version of Fleet-Tools reads "
                f"{_listing([*(upgrades or {}), version])}. Read it with the version that wrote it."
            )
        data = upgrade(data)
        found = data[VERSION_KEY]
    try:
        return parse(kind, data, str(path))
    except ConfigError as raised:
        raise error(f"{raised}\nRestore it from a copy.") from raised


def rename_keys(data: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Returns data with keys renamed, for upgrades; a key whose new name is taken stays.

    Args:
        data: Plain data, whose remaining former keys `read_document` reports as unknown.
        names: New names by former names.
    """
    return {
        new if (new := names.get(key, key)) not in data else key: value
        for key, value in data.items()
    }


def read_records(
    path: Path, kind: type[V], error: type[FleetToolsError], without: str = ""
) -> tuple[list[V], int]:
    """Reads the complete lines of a log; a last line without its newline never counts.

    Args:
        path: Path of the log, as `fleet_tools.storage.append_log.AppendLog` writes it.
        kind: Class of a record.
        error: Class of the errors raised.
        without: What is unknown without the log, for the error message.

    Returns:
        The records, and the number of bytes that they take.

    Raises:
        FleetToolsError: The log is missing or damaged.
    """
    try:
        content = path.read_bytes()
    except OSError as raised:
        raise error(
            f"{path} cannot be read: {raised.strerror}. Restore it from a copy{without}."
        ) from raised
    complete = content[: content.rfind(b"\n") + 1]
    records = []
    for number, line in enumerate(complete.splitlines(), 1):
        location = f"{path}:{number}"
        try:
            records.append(parse(kind, loads(line.decode()), location))
        except ValueError as raised:  # ConfigError is one, too
            raise error(f"{location} is damaged: {raised} Restore it from a copy.") from raised
    return records, len(complete)


def _read_json(path: Path, error: type[FleetToolsError]) -> Any:
    try:
        return load(path)
    except (OSError, ValueError) as raised:
        raise error(f"{path} is damaged: {raised}. Restore it from a copy.") from raised


def _listing(versions: list[int]) -> str:
    *first, last = map(str, sorted(versions))
    return f"{', '.join(first)} and {last}" if first else last
