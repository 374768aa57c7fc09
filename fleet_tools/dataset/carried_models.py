"""Folders of a user's own models, stored beside a dataset or result.

    models/tools/hook/gaff/                 of a family of a user's own task
    models/given/myclaw@9f0c1d2e3a4b5c6d/   given by path, as `tool=`, `object=` or `robot=`

A folder with such data names each model and its hash in its document, and holds its files once. An
environment that is made of the data again finds them there, and nowhere else.
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Self

import pydantic

from fleet_tools.config.tasks import GivenModels, TaskConfig
from fleet_tools.config.values import Value
from fleet_tools.errors import ConfigError, FleetToolsError, shown
from fleet_tools.robot.arm import load_robot, robot_names
from fleet_tools.sim.catalog import load_model
from fleet_tools.sim.model_files import digest_of, model_files
from fleet_tools.sim.own_models import OwnModel, own_models, robot_files
from fleet_tools.storage.atomic_files import clear_unfinished, replace_folder
from fleet_tools.storage.provenance import TaskFile

MODELS = "models"
"""Folder of the models, beside the document that names them."""

_MAX_ENTRIES = 10_000
"""Largest number of files and folders of a stored model."""


def models_of_all(tasks: Iterable[TaskConfig]) -> dict[OwnModel, Path]:
    """Returns the `own_models` of several tasks, and their folders.

    Raises:
        ConfigError: See `own_models`; or two tasks have a family with different models, which
            cannot lie side by side.
    """
    found: dict[OwnModel, Path] = {}
    families: dict[tuple[str, str | None], list[OwnModel]] = {}
    for task in tasks:
        models = own_models(task)
        for each in models:
            key = each.kind, each.family
            of_family = [model for model in models if (model.kind, model.family) == key]
            if families.setdefault(key, of_family) != of_family:
                raise ConfigError(
                    f"The task {task.name!r} and another task both have the {each.kind} family "
                    f"{each.family!r} with different models. Give one of the families another name."
                )
        found |= models
    return found


def other_models(models: Iterable[OwnModel], others: Iterable[OwnModel]) -> str:
    """Lists the models that are in only one of two sets."""
    one, other = list(models), list(others)
    return _listing(each for each in (*one, *other) if (each in one) != (each in other))


class CarriesModels(Value):
    """A stored document in whose folder lie the models that are not the package's.

    Attributes:
        models: The models.
    """

    error: ClassVar[type[FleetToolsError]] = ConfigError
    """Class of the errors about stored models."""

    models: tuple[OwnModel, ...] = ()
    _folders: dict[OwnModel, Path] = pydantic.PrivateAttr(default_factory=dict)
    _root: Path | None = pydantic.PrivateAttr(None)

    def __eq__(self, other: object) -> bool:
        """Returns whether two documents say the same, wherever their models lie."""
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def with_models(self, folders: Mapping[OwnModel, Path]) -> Self:
        """Returns a document that is to carry models.

        Args:
            folders: The models, and where each lies.
        """
        copy = self.model_copy(update={"models": tuple(folders)})
        copy._folders, copy._root = dict(folders), None
        return copy

    def lying_in(self, folder: Path) -> Self:
        """Returns the document with its models in the folder that holds it."""
        root = folder.absolute() / MODELS
        copy = self.with_models({model: root / model.path for model in self.models})
        copy._root = root
        return copy

    def carry(self, folder: Path) -> Self:
        """Writes the models that a folder lacks, each whole or not at all.

        Args:
            folder: The folder that holds the document; no other process writes to it.

        Returns:
            The document with its models there.

        Raises:
            FleetToolsError: A model has been edited since it was described, or cannot be moved.
            OSError: The disk is full or gone.
        """
        carried = self.lying_in(folder)
        clear_unfinished(folder / MODELS)
        for model, target in carried._folders.items():
            if not os.path.lexists(target):
                files = self._files(model, self._folders[model])
                replace_folder(target, files)
                try:
                    carried._files(model, target)
                except FleetToolsError:  # such as a mesh that is named by an absolute path
                    shutil.rmtree(target)
                    raise
        return carried

    def with_models_of(self, task: TaskFile) -> TaskFile:
        """Returns a task file of the document with the models, after checking them.

        Raises:
            FleetToolsError: A model is missing or not the one that the document names, or a family
                has others.
        """
        if not self.models:
            return task
        for model in self.models:
            if model not in self._folders:
                raise self.error(
                    f"The models of {task.name!r}, {_listing(self.models)}, are stored in a folder "
                    "beside the file that names them. Read the file together with its folder."
                )
            self._files(model, self._folders[model])
        self._require_no_others()
        given = {
            (m.kind, m.name): str(f)
            for m, f in self._folders.items()
            if m.family is None and m.kind != "robot"
        }
        return task.with_models(self._root, GivenModels(given, alone=True))

    def with_paths(self, env_kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns keyword arguments of an environment with paths of the given models."""
        given = {m.kind: str(f) for m, f in self._folders.items() if m.family is None}
        return {**env_kwargs, **given, **self.robot_path(env_kwargs)}

    def robot_path(self, env_kwargs: Mapping[str, Any]) -> dict[str, str]:
        """Returns the keyword argument of a stored environment for its robot, if it names one.

        Raises:
            FleetToolsError: It is neither one of the package nor one that the document carries,
                since a path in stored data may lead to another file here.
        """
        robot = env_kwargs.get("robot")
        if robot is None or robot in robot_names():
            return {} if robot is None else {"robot": robot}
        for model, folder in self._folders.items():
            if (model.kind, model.name) == ("robot", robot):
                self._files(model, folder)
                return {"robot": str(_robot_yaml(folder))}
        raise self.error(
            f"The robot {shown(robot)} is unknown: it is neither one of {', '.join(robot_names())} "
            "nor stored with the data."
        )

    def _files(self, model: OwnModel, folder: Path) -> dict[str, bytes]:
        """Returns the files of a model, after checking that they are those that are named."""
        try:
            if self._root is not None:
                _require_no_links(self._root, folder)
            if model.kind == "robot":
                files = robot_files(load_robot(str(_robot_yaml(folder))))
            else:
                files = model_files(load_model(folder, model.kind).file)
        except ConfigError as error:
            raise self.error(f"{model} cannot be used: {error}") from error
        if (found := digest_of(files)) != model.content_digest:
            raise self.error(
                f"{folder} is damaged, or not {model} that was used: its hash is "
                f"{found}, expected {model.content_digest}."
            )
        return files

    def _require_no_others(self) -> None:
        """Checks that families have no models in the folder that the document does not name."""
        if self._root is not None:
            found = {path.parent for path in self._root.glob("*/*/*/keypoints.yaml")}
            if others := sorted(map(str, found - set(self._folders.values()))):
                raise self.error(
                    f"{', '.join(others[:5])}: the data were made without these models. They were "
                    f"made with {_listing(self.models)}. Move the other models away."
                )


def _robot_yaml(folder: Path) -> Path:
    """Returns the only YAML file in the folder of a robot.

    Raises:
        ConfigError: There is none, or several.
    """
    found = sorted(folder.glob("*.yaml"))
    if len(found) != 1:
        raise ConfigError(
            f"{folder} holds {len(found)} YAML files; expected one, which describes the robot."
        )
    return found[0]


def _require_no_links(root: Path, folder: Path) -> None:
    """Checks that all parts of a stored model lie where they seem to lie."""
    above = [root, *(each for each in folder.parents if root in each.parents), folder]
    inside = (
        os.path.join(at, n) for at, folders, names in os.walk(folder) for n in (*folders, *names)
    )
    for path in (*above, *islice(inside, _MAX_ENTRIES)):
        if os.path.islink(path):
            raise ConfigError(
                f"{path} is a link, and links are not followed. Replace it by a copy."
            )
    if next(inside, None) is not None:
        raise ConfigError(
            f"{folder} holds more than {_MAX_ENTRIES:,} files, the most that a model may have."
        )


def _listing(models: Iterable[OwnModel]) -> str:
    return ", ".join(dict.fromkeys(map(str, models)))
