"""Locations of the package's own files, the same in a checkout and in a wheel."""

from importlib.resources import files
from pathlib import Path


def assets_root() -> Path:
    """Returns the folder with `robots/`, `tools/` and `objects/`."""
    return Path(str(files("fleet_tools.assets")))


def task_configs_root() -> Path:
    """Returns the folder with the task files."""
    return Path(str(files("fleet_tools.task_configs")))
