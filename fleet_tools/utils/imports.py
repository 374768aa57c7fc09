"""Imports functions and classes by "module:function".

Files of others may name such code, too. It is run only if it is in one of the modules that the
environment variable `FLEET_TOOLS_TRUSTED_MODULES` lists, separated by commas; a module stands for
those inside it, too.
"""

import importlib
import os
from collections.abc import Callable, Iterable
from typing import Any

from fleet_tools.errors import UnknownNameError, known_errors

TRUSTED_MODULES = "FLEET_TOOLS_TRUSTED_MODULES"


def is_trusted(name: str) -> bool:
    """Returns whether code that is named as "module:function" is in a trusted module."""
    return any(f"{name.partition(':')[0]}.".startswith(f"{module}.") for module in _trusted())


def trust(name: str) -> None:
    """Trusts the module of code that a user named, in this process and its child processes."""
    if not is_trusted(name):
        os.environ[TRUSTED_MODULES] = ",".join([*_trusted(), name.partition(":")[0]])


def _trusted() -> list[str]:
    listed = os.environ.get(TRUSTED_MODULES, "").split(",")
    return [module.strip() for module in listed if module.strip()]


def is_own(name: object) -> bool:
    """Returns whether a name is of a user's own code: module:name."""
    return isinstance(name, str) and ":" in name


def require_trusted(names: Iterable[str], source: str, error: type[Exception]) -> None:
    """Checks that code that stored data name is in trusted modules.

    Args:
        names: What is named, as module:name.
        source: What names it, for the error message.
        error: Class of the error.

    Raises:
        FleetToolsError: Some of it is not.
    """
    if strange := [name for name in dict.fromkeys(names) if not is_trusted(name)]:
        modules = ",".join(dict.fromkeys(name.partition(":")[0] for name in strange))
        raise error(
            f"{source} names {', '.join(strange)}, and their code would run here. If you trust "
            f"this code, set the environment variable {TRUSTED_MODULES}={modules}"
        )


def load_function(name: str, what: str = "function") -> Callable[..., Any]:
    """Imports a module and returns a function of it; the module's code is run.

    Args:
        name: "module:function"; programs also find modules of the working directory.
        what: Kind of function, for the error message.

    Raises:
        UnknownNameError: The module has no such function.
        Exception: Whatever the module raises.
    """
    return _load(name, what, callable)


def _load(name: str, what: str, fits: Callable[[Any], bool]) -> Any:
    module_name, _, own_name = name.partition(":")
    module = importlib.import_module(module_name)
    found = getattr(module, own_name, None)
    if not fits(found):
        known = [
            key
            for key, value in vars(module).items()
            if fits(value)
            and not (callable(value) and getattr(value, "__module__", None) != module.__name__)
        ]
        raise UnknownNameError(f"{what} in {module_name}", own_name, known)
    return found


def load_user_object(
    name: str, what: str, error_class: type[Exception], kind: type | None = None
) -> Any:
    """Imports a module of a user's own and returns a function or a value in it.

    Args:
        name: "module:name".
        what: Kind of value, for the error message, such as "method".
        error_class: Class of the error that tells why there is none.
        kind: Its class; None for whatever can be called.

    Raises:
        Exception: Of `error_class`: the name has another form, or the module cannot be
            imported.
        UnknownNameError: The module has no such value of this kind.
    """
    module_name, _, own_name = name.partition(":")
    if not module_name or not own_name:
        raise error_class(
            f"The {what} {name!r} is not of the form `module:function`, such as "
            f"policies:{what.replace(' ', '_')}."
        )
    try:
        return _load(name, what, callable if kind is None else lambda each: isinstance(each, kind))
    except known_errors():
        raise
    except (Exception, SystemExit) as error:  # a user's module may fail in any way
        raise error_class(
            f"The {what}'s module {module_name!r} cannot be imported ({type(error).__name__}: "
            f"{error}). Modules are found in the working directory and on PYTHONPATH."
        ) from error
