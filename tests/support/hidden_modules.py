"""Modules that are hidden from new Python processes."""

import os
from pathlib import Path

import pytest


def hide_modules(monkeypatch: pytest.MonkeyPatch, folder: Path, *modules: str) -> Path:
    """Hides modules from every Python process that is started from now on.

    Args:
        monkeypatch: Undoes it.
        folder: Folder from which those processes also import modules.
        modules: Names of the modules.

    Returns:
        The file that hides them.
    """
    file = folder / "sitecustomize.py"
    lines = [f"sys.modules[{module!r}] = None" for module in modules]
    file.write_text("\n".join(["import sys", *lines]))
    path = [str(folder), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
    return file
