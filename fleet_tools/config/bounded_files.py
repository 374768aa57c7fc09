"""Files that others wrote, read whole only where they are files, and not too large."""

import os
import stat
from pathlib import Path

from fleet_tools.errors import ConfigError


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """Returns the content of a file.

    Args:
        path: Path of the file.
        max_bytes: Largest size.

    Raises:
        OSError: It cannot be read.
        ConfigError: It is no regular file, such as a pipe that nobody writes to, or too large.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ConfigError(f"{path} is not a file that can be read.")
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ConfigError(f"{path} has more than {max_bytes:,} bytes.")
    return content
