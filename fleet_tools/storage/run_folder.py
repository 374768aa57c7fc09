"""Folders of runs: a JSON document that specifies the run, and files that follow from its state.

Training runs and fleets are such folders. The state is stored first and as a whole, and the log
repeats some of it, so that nothing is lost when the process is killed. Unlike in a folder of
records (`record_folder`), nothing is known from the log alone.
"""

import contextlib
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

from fleet_tools.config.values import parse
from fleet_tools.errors import FleetToolsError
from fleet_tools.storage.locked_folder import AppendLog, LockedFolder, require_blank
from fleet_tools.storage.record_folder import Document, require_same, write_document
from fleet_tools.storage.strict_json import load

CONFIG = "config.json"
"""File name of the document."""

REMEDY = "Restore it from a copy, or begin anew with --restart, which keeps the former files."
"""What can be done about a damaged run, for error messages."""

D = TypeVar("D", bound=Document)


class RunWriter(LockedFolder, Generic[D]):
    """Claims a new folder of a run, or one whose document is the same.

    Args:
        folder: Created if it does not exist; otherwise blank, or the folder of the same run.
        spec: The document.
        log_name: File name of the log.
        what: Name of the run in messages, with its article, such as "a training run".
        error: Class of the errors raised.

    Attributes:
        folder, spec: As given.

    Raises:
        FleetToolsError: The folder holds something else, or another process is writing to it.
    """

    def __init__(
        self, folder: Path, spec: D, *, log_name: str, what: str, error: type[FleetToolsError]
    ) -> None:
        self.spec, self._error = spec, error
        present = spec
        if (folder / CONFIG).exists():
            present = read_spec(folder, type(spec), error)
            require_same(present, spec, folder, what, error)
        else:
            require_blank(folder, (log_name,), what, error)
            folder.mkdir(parents=True, exist_ok=True)
            write_document(folder / CONFIG, spec, indent=1)
        self._log_path = folder / log_name
        self._log_path.touch()
        super().__init__(folder, log_name, error)
        if present != spec:  # a damaged part of it that follows from the rest
            write_document(folder / CONFIG, spec, indent=1)

    def has_state(self, name: str) -> bool:
        """Whether the run has stored a state yet.

        Args:
            name: File name of the state, which is stored before any line of the log.

        Raises:
            FleetToolsError: It has, and the state is missing.
        """
        path = self.folder / name
        if path.exists():
            return True
        if self._log_path.stat().st_size > 0:
            raise self._error(f"{path} is missing, while {self._log_path} is there. {REMEDY}")
        return False

    def write_log(self, lines: Sequence[str]) -> None:
        """Makes the log consist of the given lines; those that it already has are not rewritten.

        Args:
            lines: The lines, without newlines.

        Raises:
            OSError: The disk is full or gone.
        """
        content = self._log_path.read_bytes()
        size = present = 0
        for line in lines:
            row = line.encode() + b"\n"
            if not content.startswith(row, size):
                break
            size, present = size + len(row), present + 1
        if size < len(content):
            self._log.truncate(size)
        for line in lines[present:]:
            self._log.append(line)


def set_aside(folder: Path, log_name: str, what: str, error: type[FleetToolsError]) -> Path | None:
    """Renames the folder of a run, damaged or not, so that another one can begin there.

    Args:
        folder: Folder of the run.
        log_name: File name of its log.
        what: Name of the run in messages, with its article, such as "a training run".
        error: Class of the errors raised.

    Returns:
        The new path; None if there is no such folder, or nothing in it.

    Raises:
        FleetToolsError: The folder holds something else, or another process is writing to it.
        OSError: It cannot be renamed.
    """
    folder = Path(os.path.abspath(folder))
    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    if not any((folder / name).exists() for name in (CONFIG, log_name)):
        raise error(f"{folder} is not {what}, and is left as it is. Give another --output.")
    with contextlib.ExitStack() as stack:
        if (folder / log_name).is_file():
            try:
                log = AppendLog(folder / log_name)
            except BlockingIOError:
                raise error(f"Another process is writing to {folder}.") from None
            stack.callback(log.close)
        names = (folder.with_name(f"{folder.name}-former-{k}") for k in itertools.count(1))
        kept = next(path for path in names if not path.exists())
        return folder.rename(kept)


def read_spec(folder: Path, kind: type[D], error: type[FleetToolsError]) -> D:
    """Reads the document of a run.

    Args:
        folder: Folder of the run.
        kind: Class of the document.
        error: Class of the errors raised.

    Raises:
        FleetToolsError: The document is missing, damaged, or of another version.
    """
    path = folder / CONFIG
    try:
        return parse(kind, load(path), str(path))
    except (OSError, ValueError) as raised:  # ConfigError is a ValueError
        raise error(
            f"{path} is not a run that this version can resume: {raised} {REMEDY}"
        ) from None
