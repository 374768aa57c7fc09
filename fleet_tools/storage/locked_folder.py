"""Folders to which one process writes at a time."""

from collections.abc import Collection
from pathlib import Path
from typing import Self

from fleet_tools.errors import FleetToolsError
from fleet_tools.storage.append_log import AppendLog
from fleet_tools.storage.atomic_files import is_blank, leftovers


class LockedFolder:
    """Claims a folder by its log, and removes what a crash may have left.

    Args:
        folder: Folder with the log.
        log_name: File name of the log.
        error: Class of the errors raised.

    Attributes:
        folder: As given.

    Raises:
        FleetToolsError: Another process is writing to the folder.
    """

    def __init__(self, folder: Path, log_name: str, error: type[FleetToolsError]) -> None:
        self.folder = folder
        try:
            self._log = AppendLog(folder / log_name)
        except BlockingIOError:
            raise error(f"Another process is writing to {folder}.") from None
        try:
            clear_leftovers(folder)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Releases the folder to other processes."""
        self._log.close()

    def __enter__(self) -> Self:
        """Returns the writer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Releases the folder."""
        self.close()


def require_blank(
    folder: Path, names: Collection[str], what: str, error: type[FleetToolsError]
) -> None:
    """Checks that a folder does not exist, or holds nothing of value.

    Args:
        folder: The folder.
        names: Names of files and folders that may be there, if they are empty.
        what: What is to be made in it, with its article, such as "a dataset".
        error: Class of the errors raised.

    Raises:
        FleetToolsError: The folder holds something else.
    """
    if folder.exists() and not is_blank(folder, names):
        raise error(f"{folder} is neither empty nor {what}. Give another --output.")


def clear_leftovers(folder: Path) -> None:
    """Removes the temporary files that killed processes left."""
    for leftover in leftovers(folder):
        leftover.unlink()
