"""Import of functions and classes that are named as "module:function".

Files of others may name such code, too. It is run only if it is in one of the modules that the
environment variable `FLEET_TOOLS_TRUSTED_MODULES` lists, separated by commas; a module stands for
those inside it, too.
"""

import importlib
import os
from collections.abc import Callable
from typing import Any

from fleet_tools.errors import UnknownNameError, known_errors

TRUSTED_MODULES = "FLEET_TOOLS_TRUSTED_MODULES"


def is_trusted(name: str) -> bool:
    """Returns whether code that is named as "module:function" is in a trusted module."""
    return any(f"{name.partition(':')[0]}.".startswith(f"{module}.") for module in _trusted())


def trust(name: str) -> None:
    """Trusts the module of code that a user named, in this process and those that it starts."""
    if not is_trusted(name):
        os.environ[TRUSTED_MODULES] = ",".join([*_trusted(), name.partition(":")[0]])


def _trusted() -> list[str]:
    listed = os.environ.get(TRUSTED_MODULES, "").split(",")
    return [module.strip() for module in listed if module.strip()]


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


def load_user_function(name: str, what: str, error_class: type[Exception]) -> Callable[..., Any]:
    """Imports a module of a user's own and returns a function of it; see `load_function`.

    Args:
        name: "module:function".
        what: Kind of function, for the error message, such as "method".
        error_class: Class of the error that tells why there is no such function.

    Raises:
        Exception: Of `error_class`: the name has another form, or the module cannot be
            imported.
        UnknownNameError: The module has no such function.
    """
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise error_class(
            f"The {what} {name!r} is not of the form `module:function`, such as policies:{what}."
        )
    try:
        return load_function(name)
    except known_errors():
        raise
    except (Exception, SystemExit) as error:  # a user's module may fail in any way
        raise error_class(
            f"The {what}'s module {module_name!r} cannot be imported "
            f"({type(error).__name__}: {error}). Modules are searched in the working directory "
            "and on PYTHONPATH."
        ) from error
