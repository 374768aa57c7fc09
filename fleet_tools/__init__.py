"""Fleet-Tools: robotic tool use in Drake, behind Gymnasium.

Importing this package registers its environments (`FleetTools/Hammer-v0`, ...) and loads nothing
heavy: the names in `__all__` are imported when they are used.
"""

import lazy_loader

from fleet_tools.registration import register_environments

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"

register_environments()
