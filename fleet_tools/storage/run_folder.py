"""Folders of runs with one state file, such as training runs and fleets.

The state is stored first and as a whole, and the log repeats some of it, so that nothing is lost
when the process is killed.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fleet_tools.storage.locked_folder import Document, FolderKind, LockedFolder
from fleet_tools.storage.tensor_files import read_checked, write_checked

CONFIG, STATE = "config.json", "state.safetensors"
"""File names of the document and of the state."""

REMEDY = "Restore it from a copy, or start again with --restart, which keeps the former files."
"""Remedy for a damaged run, for error messages."""

D = TypeVar("D", bound=Document)
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RunKind(FolderKind[D]):
    """A kind of folder of runs.

    Attributes:
        state_key: Key of the state's content beside tensors.
    """

    document_name: str = CONFIG
    version_key: str = "version"
    log_follows: bool = True
    remedy: str = REMEDY
    state_key: str

    def read_state(self, folder: Path, make: Callable[[dict[str, Any], Any], T]) -> T:
        """Reads the state of a run.

        Args:
            folder: Folder of the run.
            make: Returns the state by its tensors and its plain data, which may be anything.

        Raises:
            FleetToolsError: The state is missing or damaged.
        """
        return read_checked(
            folder / STATE,
            self.state_key,
            # Not `strict_json`: losses may be infinite just before a divergence.
            lambda tensors, text: make(tensors, json.loads(text)),
            self.error,
            REMEDY,
        )

    def set_aside(self, folder: Path) -> Path | None:
        """Renames the folder of a run, damaged or not, so that another one can begin there.

        Returns:
            The new path; None if there is no such folder, or nothing in it.

        Raises:
            FleetToolsError: The folder holds something else, or another process is writing to it.
            OSError: It cannot be renamed.
        """
        folder = Path(os.path.abspath(folder))
        if not folder.is_dir() or not any(folder.iterdir()):
            return None
        if not any((folder / name).exists() for name in (CONFIG, self.log_name)):
            raise self.error(
                f"{folder} is not {self.what} and was left unchanged. Give another --output."
            )
        with contextlib.ExitStack() as stack:
            if (folder / self.log_name).is_file():
                stack.callback(self.lock(folder).close)
            names = (folder.with_name(f"{folder.name}-former-{k}") for k in itertools.count(1))
            kept = next(path for path in names if not path.exists())
            return folder.rename(kept)


class RunWriter(LockedFolder[D]):
    """Stores the state of a new run, or of one whose document is the same.

    Args:
        kind, folder, document: See `LockedFolder`.

    Raises:
        FleetToolsError: See `LockedFolder`.
    """

    def __init__(self, kind: RunKind[D], folder: Path, document: D) -> None:
        super().__init__(kind, folder, document)
        self._kind = kind
        if self.present != document:  # a damaged part of it that follows from the rest
            self.replace_document(document)

    def has_state(self) -> bool:
        """Whether the run has stored a state yet, which comes before any line of the log.

        Raises:
            FleetToolsError: It has, and the state is missing.
        """
        path = self.folder / STATE
        if path.exists():
            return True
        if self._log_path.stat().st_size > 0:
            raise self._kind.error(f"{path} is missing, but {self._log_path} exists. {REMEDY}")
        return False

    def save_state(self, tensors: Mapping[str, Any], content: Any, log: Sequence[str]) -> None:
        """Stores the state, and then the log.

        Args:
            tensors: The state's tensors.
            content: Its plain data.
            log: Lines of the log, see `write_log`.

        Raises:
            OSError: The disk is full or gone; the state before is still stored.
        """
        write_checked(self.folder / STATE, self._kind.state_key, tensors, json.dumps(content))
        self.write_log(log)

    def write_log(self, lines: Sequence[str]) -> None:
        """Makes the log consist of the given lines, without rewriting present ones.

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
