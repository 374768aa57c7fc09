"""Import of functions that are named as "module:function"."""

import importlib
from collections.abc import Callable
from typing import Any

from fleet_tools.errors import UnknownNameError


def load_function(name: str, what: str = "function") -> Callable[..., Any]:
    """Imports a module and returns a function of it; the module's code is run.

    Args:
        name: "module:function"; `python -m` also finds modules of the working directory.
        what: Kind of function, for the error message.

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
