"""Environments of task files that datasets and results store, which others may have written."""

from typing import TYPE_CHECKING, Any

from fleet_tools.envs.making import make_env
from fleet_tools.envs.predicate_functions import TRUSTED_MODULES, untrusted_functions
from fleet_tools.errors import FleetToolsError
from fleet_tools.storage.provenance import TaskFile

if TYPE_CHECKING:
    from fleet_tools.envs.tool_use_env import ToolUseEnv


def make_stored_env(
    task: TaskFile,
    source: str,
    error: type[FleetToolsError],
    *,
    trusted: bool = False,
    **kwargs: Any,
) -> "ToolUseEnv":
    """Makes an environment of a stored task file, as the file was when it was stored.

    Args:
        task: The task file.
        source: What stores it, such as "the dataset", for error messages.
        error: Class of the error of a file that is not trusted.
        trusted: Whether functions that the file names as predicates may be imported, and their code
            run. Otherwise only those in modules that the user trusts, see
            `fleet_tools.envs.predicate_functions`.
        kwargs: Keyword arguments of the environment, but for its task.

    Raises:
        FleetToolsError: The file names functions that are not trusted, is not valid, or what it
            was made of does not exist here.
    """
    if not trusted:
        require_trust(task, source, error)
    return make_env(**{**kwargs, "task": task})


def require_trust(task: TaskFile, source: str, error: type[FleetToolsError]) -> None:
    """Checks that a stored task file names no functions that the user does not trust.

    Args:
        task: The task file.
        source: What stores it.
        error: Class of the error.

    Raises:
        FleetToolsError: It does, or it is not valid.
    """
    functions = untrusted_functions(task.content())
    if functions:
        modules = ",".join(dict.fromkeys(name.partition(":")[0] for name in functions))
        raise error(
            f"The task file of {source} ({task.name}) names {', '.join(functions)}, whose code "
            "would be run here. If it is code that you trust, set the environment variable "
            f"{TRUSTED_MODULES}={modules}"
        )
