"""Import of users' own specs and methods, named as "module:function"."""

from collections.abc import Callable
from typing import Any

from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.errors import FleetToolsError
from fleet_tools.utils.imports import load_function


def load_user_function(name: str, purpose: str) -> Callable[..., Any]:
    """Imports a module and returns a function of it; see `fleet_tools.utils.imports`.

    Args:
        name: "module:function".
        purpose: What the function is, for the error message: "spec" or "method".

    Raises:
        MergeError: The name has another form, or the module cannot be imported.
        UnknownNameError: The module has no such function.
    """
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise MergeError(
            f"The {purpose} {name!r} is not of the form `module:function`, such as "
            f"policies:{purpose}."
        )
    try:
        return load_function(name)
    except FleetToolsError:
        raise
    except Exception as error:  # a user's module may fail in any way
        raise MergeError(
            f"The {purpose}'s module {module_name!r} cannot be imported "
            f"({type(error).__name__}: {error}). Modules are searched in the working directory "
            "and on PYTHONPATH."
        ) from error
