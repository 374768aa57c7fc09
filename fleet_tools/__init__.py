"""Fleet-Tools: robotic tool use in Drake, behind Gymnasium.

Importing this package registers its environments (`FleetTools/Hammer-v0`, ...) and loads nothing
heavy; Drake is imported when an environment is made.
"""

from pathlib import Path

__version__ = "0.1.0"

# In a wheel the rooms `assets`, `experts`, ... lie inside this package; in a checkout, beside it.
_checkout = Path(__file__).resolve().parents[1]
if (_checkout / "task_configs").is_dir() and (_checkout / "pyproject.toml").is_file():
    __path__.append(str(_checkout))

from fleet_tools.registration import register_environments  # noqa: E402

register_environments()
