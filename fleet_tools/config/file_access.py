"""Where the package's own files are, and how files of others are read."""

import os
import stat
from importlib.resources import files
from pathlib import Path

from fleet_tools.errors import ConfigError, UnknownNameError

PLAIN = "plain"
"""No texture: the surface keeps its own colour."""


def assets_root() -> Path:
    """Returns the folder with `robots/`, `tools/` and `objects/`, in a checkout or a wheel."""
    return Path(str(files("fleet_tools.assets")))


def task_configs_root() -> Path:
    """Returns the folder with the task files."""
    return Path(str(files("fleet_tools.task_configs")))


def texture_names() -> list[str]:
    """Returns `plain` and the names of the textures that come with the package."""
    return [PLAIN, *sorted(path.stem for path in _textures_root().glob("*.png"))]


def texture_file(name: str) -> Path | None:
    """Returns the PNG file of a texture, or None for `plain`.

    Raises:
        UnknownNameError: There is no such texture.
    """
    if name not in texture_names():
        raise UnknownNameError("texture", name, texture_names())
    return None if name == PLAIN else _textures_root() / f"{name}.png"


def _textures_root() -> Path:
    return assets_root() / "textures"


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """Returns the content of a file that others wrote.

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
