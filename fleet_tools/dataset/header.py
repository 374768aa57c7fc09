"""`dataset.json`: what was collected, in which environment, from which seed, with which versions.

It describes an environment completely, so that the same one can be made again from it.
"""

import tempfile
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import gymnasium
import pydantic
import yaml

import fleet_tools
from fleet_tools.config.tasks import TaskConfig, task_names, task_path
from fleet_tools.config.values import Positive, Value, differences, parse
from fleet_tools.errors import ConfigError, FleetToolsError
from fleet_tools.registration import CUSTOM_ID, environment_id, make_environment

SCHEMA_VERSION = 1

_PACKAGES = ("drake", "gymnasium", "h5py", "numpy")


class TaskFile(Value):
    """A task file as it was.

    Attributes:
        name: The task's.
        content_digest: Hash of what the file says, whatever its comments and layout.
        text: The file, verbatim.
        folder: Where relative paths of a user's own task begin; None for the package's own.
    """

    name: str
    content_digest: str
    text: str
    folder: str | None


class Environment(Value):
    """What to make: `gymnasium.make(id, **kwargs)`."""

    id: str
    kwargs: dict[str, pydantic.JsonValue]


class Array(Value):
    """An array of each step: its shape and dtype, what its entries are, in which unit and frame."""

    shape: tuple[int, ...]
    dtype: str
    unit: str
    frame: str | None
    entries: tuple[str, ...] = ()
    """Names along the first axis, where they have names."""
    scale: tuple[float, ...] = ()
    """What an entry of 1 means, in the unit, where it is not 1."""


class Header(Value):
    """The content of `dataset.json`."""

    schema_version: Literal[1] = SCHEMA_VERSION
    task: TaskFile
    environment: Environment
    policy: str
    seed: pydantic.NonNegativeInt
    keep_failures: bool
    control_rate_hz: Positive
    action: Array
    observation: dict[str, Array]
    packages: dict[str, str]

    def differences(self, other: "Header") -> list[str]:
        """Says in what two headers differ that may not differ within one data set."""
        return differences(self._essence(), other._essence())

    def _essence(self) -> dict[str, object]:
        kwargs = {key: value for key, value in self.environment.kwargs.items() if key != "task"}
        return {
            "the task": f"{self.task.name} ({self.task.content_digest})",
            "the environment": kwargs,
            "the policy": self.policy,
            "the seed": self.seed,
            "keep-failures": self.keep_failures,
            **{f"the version of {name}": number for name, number in self.packages.items()},
        }


def read_task_file(name_or_path: str) -> TaskFile:
    """Reads a task file as it is.

    Raises:
        UnknownNameError, ConfigError: There is no such task, or it is not valid.
    """
    path = task_path(name_or_path)
    try:
        text = path.read_text()
        task = parse(TaskConfig, yaml.safe_load(text), str(path))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    own = name_or_path not in task_names()
    return TaskFile(
        name=task.name,
        content_digest=task.digest(),
        text=text,
        folder=str(path.parent) if own else None,
    )


def describe(
    env: gymnasium.Env, task: str, *, policy: str, seed: int, keep_failures: bool, **kwargs
) -> Header:
    """Describes a data set to be collected.

    Args:
        env: The environment, as `make_environment(task=task, **kwargs)` returns it.
        task: Name of a task of the package, or path of a task file.
        policy, seed, keep_failures: How it is collected.
        kwargs: The environment's other keywords.
    """
    file = read_task_file(task)
    own = file.folder is not None
    env = env.unwrapped
    return Header(
        task=file,
        environment=Environment(
            id=CUSTOM_ID if own else environment_id(task),
            kwargs={"task": str(task_path(task)) if own else task, **kwargs},
        ),
        policy=policy,
        seed=seed,
        keep_failures=keep_failures,
        control_rate_hz=env.metadata["render_fps"],
        action=describe_action(env),
        observation=describe_observation(env),
        packages=installed_packages(),
    )


def installed_packages(names: Iterable[str] = _PACKAGES) -> dict[str, str]:
    """The versions on which bits depend: this package's and others', by default an episode's."""
    return {"fleet_tools": fleet_tools.__version__} | {name: version(name) for name in names}


def other_versions(packages: Mapping[str, str]) -> dict[str, tuple[str, str | None]]:
    """Returns the packages that are installed in another version here: that one, and ours."""
    here = installed_packages()
    return {
        name: (then, here.get(name)) for name, then in packages.items() if then != here.get(name)
    }


def remake_environment(header: Header, **others: Any) -> gymnasium.Env:
    """Makes the environment of a data set again, from the task file as it was then.

    Args:
        header: Of the data set.
        others: Keywords that are to differ, such as how it renders.

    Raises:
        FleetToolsError: What it was made of does not exist here.
    """
    kwargs = {**header.environment.kwargs, **others}
    try:
        unchanged = read_task_file(kwargs["task"]).content_digest == header.task.content_digest
    except FleetToolsError:
        unchanged = False
    if unchanged:
        return make_environment(**kwargs)
    content = yaml.safe_load(header.task.text)
    if content.get("assets") is not None and header.task.folder is not None:
        content["assets"] = str(Path(header.task.folder) / content["assets"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{header.task.name}.yaml"
        path.write_text(yaml.safe_dump(content))
        return make_environment(**kwargs | {"task": str(path)})


def describe_action(env: gymnasium.Env) -> Array:
    """What an action of an environment of this package is."""
    env = env.unwrapped
    space = env.action_space
    axes = [f"{motion}_{axis}" for motion in ("translation", "rotation") for axis in "xyz"]
    return Array(
        shape=space.shape,
        dtype=space.dtype.name,
        unit="m, rad",
        frame="end effector, as it is before the step",
        entries=axes,
        scale=env.action_scale.tolist(),
    )


def describe_observation(env: gymnasium.Env) -> dict[str, Array]:
    """What an observation of an environment of this package holds, by name."""
    return {
        name: Array(
            shape=sense.space.shape,
            dtype=sense.space.dtype.name,
            unit=sense.unit,
            frame=sense.frame,
            entries=sense.entries,
        )
        for name, sense in env.unwrapped.senses.items()
    }
