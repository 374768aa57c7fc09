"""Fleet-Tools: robotic tool use in Drake, behind Gymnasium.

Importing this package registers its environments (`FleetTools/Hammer-v0`, ...) and loads nothing
heavy; Drake is imported when an environment is made.
"""

from fleet_tools.registration import register_environments

__version__ = "0.1.0"

register_environments()
