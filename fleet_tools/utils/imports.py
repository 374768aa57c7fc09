"""Functions of a user's own, named as module:function on a command line or in a file."""

import importlib
from collections.abc import Callable
from typing import Any

from fleet_tools.errors import UnknownNameError


def load_function(name: str, what: str = "function") -> Callable[..., Any]:
    """Imports a module and returns its function; so that is code to be trusted.

    Args:
        name: "module:function"; `python -m` finds modules of the working directory, too.
        what: It is, for the error.

    Raises:
        UnknownNameError: The module has no such function.
        Exception: Whatever the module raises.
    """
    module_name, _, function_name = name.partition(":")
    module = importlib.import_module(module_name)
    function = getattr(module, function_name, None)
    if not callable(function):
        known = [
            key
            for key, value in vars(module).items()
            if getattr(value, "__module__", None) == module.__name__ and callable(value)
        ]
        raise UnknownNameError(f"{what} in {module_name}", function_name, known)
    return function
