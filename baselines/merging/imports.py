"""Functions of a user's own, named as module:function on a command line or in a file."""

import importlib
from collections.abc import Callable
from typing import Any

from fleet_tools.baselines.merging.errors import FleetError
from fleet_tools.errors import FleetToolsError, UnknownNameError


def load_function(name: str, what: str) -> Callable[..., Any]:
    """Imports a module and returns its function; so that is code to be trusted, unlike models.

    Args:
        name: "module:function"; `python -m` finds modules of the working directory, too.
        what: It is for, such as "spec".

    Raises:
        FleetError: The name has another form, or the module cannot be imported.
        UnknownNameError: The module has no such function.
    """
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise FleetError(f"The {what} {name!r} is no `module:function`, such as policies:{what}.")
    try:
        module = importlib.import_module(module_name)
    except FleetToolsError:
        raise
    except Exception as error:  # a stranger's module may fail in any way
        raise FleetError(
            f"The {what}'s module {module_name!r} cannot be imported "
            f"({type(error).__name__}: {error}). Modules are looked for in the working directory "
            "and on PYTHONPATH."
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        known = [
            key
            for key, value in vars(module).items()
            if getattr(value, "__module__", None) == module.__name__ and callable(value)
        ]
        raise UnknownNameError(f"function in {module_name}", function_name, known)
    return function
