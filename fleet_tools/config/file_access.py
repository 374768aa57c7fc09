"""Paths of the package's files, and bounded reading of files of others."""

import os
import stat
from importlib.resources import files
from pathlib import Path

from fleet_tools.errors import ConfigError, UnknownNameError, shown

PLAIN = "plain"
"""No texture: the surface keeps its own colour."""


def assets_root() -> Path:
    """Returns the folder with `robots/`, `tools/` and `objects/`, in a checkout or a wheel."""
    return Path(str(files("fleet_tools.assets")))


def task_configs_root() -> Path:
    """Returns the folder with the task files."""
    return Path(str(files("fleet_tools.task_configs")))


def yaml_names(folder: Path) -> list[str]:
    """Returns the names by which the YAML files of one of the package's folders are called."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def yaml_path(kind: str, name_or_path: str | os.PathLike[str], folder: Path) -> Path:
    """Returns a YAML file, given its name in one of the package's folders, or its path.

    Args:
        kind: What it describes, such as "task".
        name_or_path: The name or the path.
        folder: The package's folder.

    Raises:
        UnknownNameError: There is neither such a name nor such a file.
        ConfigError: It is neither a name nor a path.
    """
    names = yaml_names(folder)
    if isinstance(name_or_path, os.PathLike):
        name_or_path = os.fspath(name_or_path)
    if not isinstance(name_or_path, str):
        raise ConfigError(
            f"Expected a {kind}: one of {', '.join(names)}, or the path of a YAML file; given: "
            f"{shown(name_or_path)}."
        )
    if name_or_path in names:
        return folder / f"{name_or_path}.yaml"
    if is_yaml_file(name_or_path):
        return Path(os.path.expanduser(name_or_path)).resolve()
    remedy = f"A {kind} of your own is given by the path of its YAML file."
    raise UnknownNameError(kind, name_or_path, names, remedy)


def is_yaml_file(path: str) -> bool:
    """Returns whether a path, of any name, leads to a YAML file."""
    path = os.path.expanduser(path)
    return path.endswith((".yaml", ".yml")) and os.path.isfile(path)


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


def models_below(root: Path, kind: str, family: str) -> dict[str, Path]:
    """Returns the folders of a family's models below one root, by name; none if it has none.

    Args:
        root: A folder that is laid out like `assets_root`.
        kind: "tool" or "object".
        family: The family.
    """
    # A family of "../.." would lead out of the root.
    if family in ("", ".", "..") or "/" in family or "\0" in family:
        return {}
    labels = (root / f"{kind}s" / family).glob("*/keypoints.yaml")
    return {path.parent.name: path.parent for path in labels}


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
        raise ConfigError(f"{path} is too large: at most {max_bytes:,} bytes are read.")
    return content
