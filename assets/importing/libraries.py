"""Libraries that only the import of foreign meshes needs."""

import importlib
from types import ModuleType

from fleet_tools.errors import MissingLibraryError


def require(name: str, purpose: str, otherwise: str = "") -> ModuleType:
    """Imports a library of the extra `import`.

    Args:
        name: Of the module.
        purpose: What it is wanted for.
        otherwise: How to do without it, where there is a way.

    Raises:
        MissingLibraryError: It cannot be imported; the message holds the line that installs it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingLibraryError(
            f"{name} is needed to {purpose}, and cannot be imported ({error}). "
            f"Install it with: python -m pip install 'fleet-tools[import]' (from a checkout: "
            f'python -m pip install -c constraints.txt -e ".[import]"). {otherwise}'.rstrip()
        ) from error
