"""A user's own models: of a family of a task, or given by path.

Stored data carry them in folders of their own.
"""

from pathlib import Path
from typing import Annotated, Literal

import pydantic

from fleet_tools.config.file_access import models_below
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.config.values import Value
from fleet_tools.errors import ConfigError, shown
from fleet_tools.robot.arm import LIGHT, Arm, load_robot
from fleet_tools.sim.catalog import Kind, load_model
from fleet_tools.sim.model_files import digest_of, model_digest, model_files

_Name = Annotated[str, pydantic.Field(pattern=r"^[^/\\\x00-\x1f\x7f.][^/\\\x00-\x1f\x7f]{0,199}$")]
"""The name of a folder that is not hidden, and leads nowhere else."""


class OwnModel(Value):
    """A model that is not the package's."""

    kind: Kind | Literal["robot"]
    """Whether it is a tool, an object or a robot."""
    family: _Name | None
    """Its family; None if it was given by path."""
    name: _Name
    """Its name in scenes: in the family, or NAME@HASH."""
    content_digest: Annotated[str, pydantic.Field(pattern="^[0-9a-f]{16}$")]
    """Hash of its files (`fleet_tools.sim.model_files.digest_of`)."""

    @property
    def path(self) -> str:
        """Its folder below the one of all models."""
        above = "given" if self.family is None else f"{self.kind}s/{self.family}"
        return f"{above}/{self.name}"

    def __str__(self) -> str:
        """Returns what it is, without its hash."""
        return f"the {self.kind} {self.name.removesuffix(f'@{self.content_digest}')}"


def own_models(task: TaskConfig) -> dict[OwnModel, Path]:
    """Returns the models that scenes of a task may have beside the package's, and their folders.

    Raises:
        ConfigError: A model is not allowed, or its folder has a name that cannot be stored.
    """
    found: list[tuple[Kind, str | None, str, Path]] = []
    kinds: tuple[tuple[Kind, str], ...] = (
        ("tool", task.tool_family),
        ("object", task.object_family),
    )
    for kind, family in kinds:
        for (its_kind, name), folder in sorted(task.given.folders.items()):
            if its_kind == kind:
                found.append((kind, None, name, Path(folder)))
        if task.assets is not None:
            for name, folder in sorted(models_below(Path(task.assets), kind, family).items()):
                found.append((kind, family, name, folder))
    return {_described(*each): each[-1] for each in found}


def load_admitted_robot(name_or_path: str) -> Arm:
    """Reads a robot, and checks the model files of one that is not the package's.

    Raises:
        UnknownNameError, ConfigError: See `load_robot`; or a model file is not allowed.
    """
    robot = load_robot(name_or_path)
    if robot.is_own:
        robot_files(robot)
    return robot


def own_robot(robot: Arm) -> dict[OwnModel, Path]:
    """Returns a robot that is not the package's, and its folder.

    Raises:
        ConfigError: A model file is not allowed, or the robot has a name that cannot be stored.
    """
    if not robot.is_own:
        return {}
    digest = digest_of(robot_files(robot))
    try:
        name = f"{robot.file.stem}@{digest}"
        model = OwnModel(kind="robot", family=None, name=name, content_digest=digest)
    except pydantic.ValidationError:
        raise ConfigError(
            f"The robot {shown(str(robot.file))} has a name that cannot be stored. Rename the file."
        ) from None
    return dict([(model, robot.file.parent)])


def robot_files(robot: Arm) -> dict[str, bytes]:
    """Returns the files of a robot by their paths, relative to the folder of its YAML file.

    Raises:
        ConfigError: A model file is not allowed, or lies elsewhere.
    """
    files: dict[str, bytes] = {}
    for visuals in (LIGHT, *robot.visuals):
        model = robot.model_file(visuals)
        if model.parent != robot.file.parent:
            raise ConfigError(
                f"{robot.file}: the model {model} is in another folder. Put it beside this file, "
                "with its meshes."
            )
        files |= model_files(model, beside=robot.file.name)
    return files


def _described(kind: Kind, family: str | None, name: str, folder: Path) -> OwnModel:
    digest = model_digest(load_model(folder, kind).file)
    try:
        return OwnModel(kind=kind, family=family, name=name, content_digest=digest)
    except pydantic.ValidationError:
        raise ConfigError(
            f"The {kind} {shown(str(folder))} has a name that cannot be stored. Rename the folder."
        ) from None
