"""Provenance of stored files: task file, package versions, machine."""

import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pydantic

import fleet_tools
from fleet_tools.config.tasks import (
    NO_MODELS,
    GivenModels,
    TaskConfig,
    read_task,
    task_names,
    task_path,
    with_own_models,
)
from fleet_tools.config.values import Number, Value, parse
from fleet_tools.config.yaml_text import parse_yaml
from fleet_tools.errors import ConfigError, shown
from fleet_tools.registration import TOOL_USE

UNKNOWN = "unknown"
"""Version of a package that was built from source, and not installed by pip."""


class TaskFile(Value):
    """A task file at the time of use.

    Attributes:
        name: Name of the task.
        content_digest: Hash of the content, independent of comments, layout and `gentle`.
        text: The file, verbatim; one that extends others, with all that it takes from them.
        folder: Folder to which the paths of a user's own task are relative; None for the package's.
    """

    name: str
    content_digest: str
    text: str
    folder: str | None
    _models: tuple[Path | None, GivenModels] = pydantic.PrivateAttr((None, NO_MODELS))

    def with_models(self, root: Path | None, given: GivenModels) -> "TaskFile":
        """Returns the task file with models that were stored with it.

        Args:
            root: Folder that takes the place of the task's `assets`; None for these.
            given: Models that were given by path.
        """
        copy = self.model_copy()
        copy._models = root, given
        return copy

    def __hash__(self) -> int:
        """Returns a hash, by which caches find it."""
        return hash((self.name, self.content_digest, self.folder))

    def content(self) -> TaskConfig:
        """Returns the content of the file.

        Raises:
            ConfigError: The text is not a task file's.
        """
        source = f"The stored task file of {shown(self.name)}"
        return parse(TaskConfig, parse_yaml(self.text, source), source)

    def load(self) -> TaskConfig:
        """Returns the task with its models, as `fleet_tools.config.tasks.load_task`.

        Raises:
            ConfigError: The text is not a task file's, its folder of models is not here, or see
                `with_own_models`.
        """
        task, (root, given) = self.content(), self._models
        if task.assets is None:
            return task.with_given(given)
        if root is not None:  # models that the package got since may have the same names
            return task.model_copy(update={"assets": str(root.resolve())}).with_given(given)
        assets = Path(self.folder or "", task.assets)
        if not assets.is_dir():
            raise ConfigError(
                f"The models of the task {self.name!r} were in {assets.resolve()}, which does not "
                "exist here. Give the present path of the task file."
            )
        return with_own_models(task, Path(self.folder or "")).with_given(given)


class Machine(Value):
    """The machine of an evaluation; wall times depend on it, and the last bits may.

    Attributes:
        system: Operating system and Python.
        processor: Name of the processor.
        cores: Number of cores.
        memory_gib: Memory, GiB.
        instructions: Vector extensions of the processor, by which libraries choose their kernels.
        c_library: The C library and its version.

    What is unknown is an empty string.
    """

    system: str
    processor: str
    cores: Number
    memory_gib: Number
    instructions: str = ""
    c_library: str = ""

    @classmethod
    def here(cls) -> "Machine":
        """Returns this machine."""
        from fleet_tools.utils import machine

        return cls(
            system=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
            processor=machine.processor(),
            cores=machine.available_cores(),
            memory_gib=round(machine.total_memory() / machine.GIB, 1),
            instructions=machine.vector_instructions(),
            c_library=machine.c_library(),
        )

    def differences(self, other: "Machine") -> dict[str, tuple[str, str]]:
        """Lists the known differences to another machine that can change bits of results."""
        return {
            name: (mine, theirs)
            for name in ("processor", "instructions", "c_library")
            for mine, theirs in [(getattr(self, name), getattr(other, name))]
            if mine and theirs and mine != theirs
        }


def read_task_file(name_or_path: str) -> TaskFile:
    """Reads a task file.

    Raises:
        UnknownNameError, ConfigError: There is no such task, it is not valid, or it takes the name
            of a task of the package.
    """
    task, file = read_task(name_or_path)
    own = name_or_path not in task_names()
    path = file.layers[0].path
    if own and task.name in task_names() and path.resolve() != task_path(task.name).resolve():
        raise ConfigError(
            f"{path} has the name of a task of the package, {task.name!r}. Give your task another "
            "`name`, so that data and results of the two stay distinct."
        )
    return TaskFile(
        name=task.name,
        content_digest=task.digest(),
        text=file.text,
        folder=str(path.parent) if own else None,
    )


def installed_packages(names: Iterable[str] = TOOL_USE.packages) -> dict[str, str]:
    """Returns the versions of this package and of others on which bits depend.

    Args:
        names: The other packages; by default those on which an episode depends.
    """
    return {name: _version(name) or UNKNOWN for name in ("fleet_tools", *names)}


def other_versions(packages: Mapping[str, str]) -> dict[str, tuple[str, str | None]]:
    """Returns the packages installed in another version here: the given version, and this one."""
    return {
        name: (then, here)
        for name, then in packages.items()
        for here in [_version(name)]
        if (here or UNKNOWN) != then
    }


def _version(name: str) -> str | None:
    """Returns the version of an installed package; None if pip did not install it."""
    try:
        return fleet_tools.__version__ if name == "fleet_tools" else version(name)
    except PackageNotFoundError:
        return None
