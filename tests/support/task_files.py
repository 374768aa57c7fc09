"""Task files of the package, with all that they leave out."""

import json
from typing import Any

from fleet_tools.config.tasks import load_task


def whole_task(name: str) -> dict[str, Any]:
    """Returns the content of a task file, as plain data, with every default written out."""
    return json.loads(load_task(name).to_json())
