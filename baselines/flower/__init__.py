"""Fleets over Flower (https://flower.ai), for robots and computers that others own.

Flower is an optional library, installed in its own environment; see the guide "From two laptops to
a fleet". Its processes import `client` and `server` by name.
"""

import importlib
from types import ModuleType

from fleet_tools.utils.libraries import require


def flower(module: str) -> ModuleType:
    """Imports one of Flower's modules, such as "app" for `flwr.app`.

    Raises:
        MissingLibraryError: Flower is not installed here; the message holds the command.
    """
    require("flwr", "run fleets over Flower", "Give it an environment of its own.")
    return importlib.import_module(f"flwr.{module}")
