"""Specs and methods of a user's own, named as module:function."""

from collections.abc import Callable
from typing import Any

from fleet_tools.baselines.merging.errors import FleetError
from fleet_tools.errors import FleetToolsError
from fleet_tools.utils.imports import load_function


def load_own(name: str, what: str) -> Callable[..., Any]:
    """Imports a module and returns its function; see `load_function`.

    Args:
        name: "module:function".
        what: It is for, such as "spec".

    Raises:
        FleetError: The name has another form, or the module cannot be imported.
        UnknownNameError: The module has no such function.
    """
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise FleetError(f"The {what} {name!r} is no `module:function`, such as policies:{what}.")
    try:
        return load_function(name)
    except FleetToolsError:
        raise
    except Exception as error:  # a stranger's module may fail in any way
        raise FleetError(
            f"The {what}'s module {module_name!r} cannot be imported "
            f"({type(error).__name__}: {error}). Modules are looked for in the working directory "
            "and on PYTHONPATH."
        ) from error
