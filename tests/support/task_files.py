"""Task files of the package, with all that they leave out, and with other entries."""

import json
from pathlib import Path
from typing import Any

import yaml

from fleet_tools.config.tasks import load_task, task_path


def whole_task(name: str) -> dict[str, Any]:
    """Returns the content of a task file, as plain data, with every default written out."""
    return json.loads(load_task(name).to_json())


def own_task(folder: Path, name: str, **changes: Any) -> str:
    """Writes a task file of the package with other entries, and returns the new file's path."""
    file = folder / f"own_{name}.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(task_path(name).read_text()) | changes))
    return str(file)
