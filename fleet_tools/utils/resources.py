"""Where the package's own files are: assets and task files, in a checkout and in a wheel alike."""

from importlib.resources import files
from pathlib import Path


def assets_root() -> Path:
    """The folder with `robots/`, `tools/` and `objects/`."""
    return Path(str(files("fleet_tools.assets")))


def task_configs_root() -> Path:
    """The folder with the task files."""
    return Path(str(files("fleet_tools.task_configs")))
