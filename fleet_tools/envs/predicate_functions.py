"""Success predicates by a user's own functions, which the environment imports.

A task file that names such functions runs their code, so the file has to be trusted like code. One
that comes with a dataset is trusted only as far as its functions are in trusted modules, see
`fleet_tools.utils.imports`.
"""

import inspect
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic

from fleet_tools.config.predicates import UserFunction
from fleet_tools.config.tasks import TaskConfig, load_task, read_task
from fleet_tools.config.values import Value, cite
from fleet_tools.config.yaml_text import Location
from fleet_tools.errors import ConfigError, FleetToolsError, PredicateError
from fleet_tools.storage.provenance import TaskFile
from fleet_tools.utils.imports import load_user_object, require_trusted

# Drake is imported with the environment.
if TYPE_CHECKING:
    from fleet_tools.sim.world_state import WorldState

Replace = Callable[[UserFunction, Location], UserFunction]


class BoundFunction(UserFunction):
    """A function that has been imported."""

    _function: Callable[..., Any] = pydantic.PrivateAttr()
    _place: str = pydantic.PrivateAttr()

    @classmethod
    def of(cls, named: UserFunction, function: Callable[..., Any], place: str) -> "BoundFunction":
        """Binds a predicate to its function.

        Args:
            named: The predicate of the task file.
            function: Its function.
            place: Where the task file names it, for error messages.
        """
        bound = cls(type=named.type, function=named.function, kwargs=named.kwargs)
        bound._function, bound._place = function, place
        return bound

    def __call__(self, initial: "WorldState", now: "WorldState") -> Any:
        """Calls the function.

        Raises:
            PredicateError: It raised an error.
        """
        try:
            return self._function(initial, now, **self.kwargs)
        except (Exception, SystemExit) as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            what = f"{type(error).__name__}: {error}"[:500]
            raise self.error(f"raised at {where}: {what}") from error

    def error(self, complaint: str) -> PredicateError:
        """Returns an error of the function, with its place in the task file."""
        return PredicateError(f"{self._place}: {self.function} {complaint}")


def load_bound_task(task: str | TaskFile) -> TaskConfig:
    """Reads a task, and imports the functions that it names as predicates; their code is run.

    Args:
        task: Name or path of the task, or a stored task file.

    Returns:
        The task with these predicates bound to their functions.

    Raises:
        UnknownNameError: There is no such task.
        ConfigError: The file does not fit. Or a function does not exist, cannot be imported, or
            does not take the file's arguments; the message tells the place in the file.
    """
    if isinstance(task, TaskFile):
        loaded, place = task.load(), partial(cite, task.text, f"the task file of {task.name!r}")
    else:
        loaded, place = load_task(task), read_task(task)[1].cite

    def bind(named: UserFunction, location: Location) -> BoundFunction:
        try:
            function = load_user_object(named.function, "predicate", ConfigError)
        except FleetToolsError as error:
            raise ConfigError(f"{place((*location, 'function'))}: {error}") from error
        complaint = _refusal(function, named.kwargs)
        if complaint is not None:
            raise ConfigError(
                f"{place((*location, 'kwargs'))}: {named.function}(initial, now, **kwargs) does "
                f"not accept {named.kwargs}: {complaint}."
            )
        return BoundFunction.of(named, function, place(location))

    return _replaced(loaded, (), bind)


def functions_of(task: TaskConfig) -> list[str]:
    """Returns the functions that a task file names as predicates, as module:function."""
    names: list[str] = []

    def note(named: UserFunction, location: Location) -> UserFunction:
        names.append(named.function)
        return named

    _replaced(task, (), note)
    return names


def require_trust(task: TaskFile, source: str, error: type[FleetToolsError]) -> None:
    """Checks that a stored task file names no functions that the user does not trust.

    Args:
        task: The task file.
        source: What stores it.
        error: Class of the error.

    Raises:
        FleetToolsError: It does, or it is not valid.
    """
    named = f"The task file of {source} ({task.name})"
    require_trusted(functions_of(task.content()), named, error)


def _refusal(function: Callable[..., Any], kwargs: dict[str, Any]) -> str | None:
    """Returns why a function cannot be called with two states and keyword arguments."""
    try:
        inspect.signature(function).bind(None, None, **kwargs)
    except TypeError as error:
        return str(error)
    except ValueError:  # one that is not written in Python may not tell what it takes
        return None
    return None


def _replaced(value: Any, location: Location, replace: Replace) -> Any:
    """Returns a value in which the predicates that are functions, at any depth, are replaced.

    Args:
        value: The value.
        location: Where it is.
        replace: Returns what takes the place of a predicate at a location.
    """
    match value:
        case UserFunction():
            return replace(value, location)
        case Value():
            parts = {name: _replaced(part, (*location, name), replace) for name, part in value}
            return value.model_copy(update=parts)
        case tuple():
            return tuple(_replaced(part, (*location, i), replace) for i, part in enumerate(value))
    return value
