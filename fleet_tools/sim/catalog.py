"""Tools and objects: one model folder each, found by family and name, or by path.

A model folder holds `model.sdf` (or one other SDFormat or URDF file) and `keypoints.yaml`:

    family: hammer
    kind: tool                  # or object
    keypoints:                  # in metres, in the frame of the named link
      head: {link: hammer, position: [0.18, 0.0, 0.045]}
    grasp:                      # optional, tools only: X_TG, where the end effector holds the tool
      translation_m: [0.0, 0.0, 0.0]
      rpy_deg: [0.0, 0.0, 0.0]
"""

import os
import re
import shlex
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import pydantic

from fleet_tools.config.file_access import assets_root, models_below
from fleet_tools.config.geometry import Pose
from fleet_tools.config.tasks import NO_MODELS, GivenModels, TaskConfig
from fleet_tools.config.values import Value, Vector3, load_yaml
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.sim.model_files import model_digest

Kind = Literal["tool", "object"]

UpAxis = Literal["x", "y", "z", "-x", "-y", "-z"]
"""Axis of a mesh file that becomes z."""

MESH_SUFFIXES = (".dae", ".glb", ".gltf", ".obj", ".off", ".ply", ".stl")
"""Suffixes of the files that visual meshes may be, and that
`python -m fleet_tools.assets import` reads."""


class Keypoint(Value):
    """A labelled point: `position` in metres, in the frame of the model's link `link`."""

    link: str
    """Link of the model; the position is in its frame."""
    position: Vector3
    """Position, m."""


class Keypoints(Value):
    """The content of `keypoints.yaml`."""

    family: str
    """Family of the model."""
    kind: Kind
    """Whether it is a tool or an object."""
    keypoints: Annotated[dict[str, Keypoint], pydantic.Field(min_length=1)]
    """Labelled points by name."""
    grasp: Pose = Pose()
    """X_TG, pose of the grasp frame, where the end effector holds the tool; tools only."""


class Model(Value):
    """A tool or an object: the path of its model file, and its labels."""

    name: str
    file: Path
    labels: Keypoints

    def keypoint(self, name: str) -> Keypoint:
        """Returns a labelled point.

        Raises:
            UnknownNameError: The model has no such keypoint.
        """
        known = self.labels.keypoints
        if name not in known:
            raise UnknownNameError(f"keypoint of {self.labels.kind} {self.name!r}", name, known)
        return known[name]


def load_model(folder: Path, kind: Kind) -> Model:
    """Reads a model folder.

    Raises:
        ConfigError: A file is missing or ambiguous, the labels do not fit, or the model is of
            another kind.
    """
    if not os.path.isdir(folder):  # `Path.is_dir` raises where a name is too long
        raise ConfigError(
            f"{folder} is not a folder. Give the folder of a model, with its SDFormat or URDF file "
            "and keypoints.yaml."
        )
    files = [folder / "model.sdf"] if (folder / "model.sdf").is_file() else []
    files = files or sorted([*folder.glob("*.sdf"), *folder.glob("*.urdf")])
    if len(files) != 1:
        raise ConfigError(
            f"{folder} must hold one SDFormat or URDF file, such as model.sdf; it holds "
            f"{[file.name for file in files] or 'none'}." + _remedy(kind, folder, files)
        )
    labels_file = folder / "keypoints.yaml"
    if not labels_file.is_file():
        raise ConfigError(
            f"{folder} lacks keypoints.yaml, with the family and the labelled points of the model. "
            f"Add this file, with lines such as `family: hammer`, `kind: {kind}` and `keypoints: "
            "{head: {link: hammer, position: [0.18, 0, 0.045]}}` (metres)."
        )
    labels = _read_labels(labels_file, labels_file.stat().st_mtime_ns)
    if labels.kind != kind:
        raise ConfigError(
            f"{folder} has `kind: {labels.kind}` in keypoints.yaml; expected a {kind}."
        )
    return Model(name=folder.name, file=files[0], labels=labels)


def model_names(kind: Kind, family: str, extra_root: str | None = None) -> list[str]:
    """Returns the models of a family, sorted: the package's own, and those below `extra_root`.

    Raises:
        UnknownNameError: There is no such family.
    """
    return sorted(_family(kind, family, extra_root))


def find_model(
    kind: Kind,
    family: str,
    name: str,
    extra_root: str | None = None,
    given: GivenModels = NO_MODELS,
) -> Model:
    """Finds a model by its name in a family, by the path of its folder, or among the given ones.

    Args:
        kind: Kind of the model.
        family: Family of the model.
        name: Its name, or its path.
        extra_root: Folder of further models of the family.
        given: Models that were given by path, by their names.

    Raises:
        UnknownNameError: There is no such family, or no such name in it and no such folder.
        ConfigError: The folder is not a model of that kind, the path is a file, or a given model
            has been edited since.
    """
    known = _family(kind, family, extra_root)
    names = [*known, *(each for its_kind, each in given.folders if its_kind == kind)]
    if isinstance(name, str) and name:
        if name in known:
            return load_model(known[name], kind)
        if (kind, name) in given.folders:
            return _given(kind, name, given.folders[kind, name])
        if given.alone:
            raise UnknownNameError(f"{kind} of the family {family!r}", name, names)
        folder = Path(os.path.expanduser(name))
        if os.path.isdir(folder):  # also of names that no file can have
            return load_model(folder.resolve(), kind)
        is_file = os.path.isfile(folder)
        if is_file and folder.suffix.lower() in MESH_SUFFIXES:
            raise ConfigError(f"{folder} is a mesh. {_import_command(kind, family, folder)}")
        if is_file:
            raise ConfigError(
                f"{folder} is a file. Give the path of the folder of a {kind}, which also holds "
                "keypoints.yaml."
            )
    remedy = f"Your own {kind} is given by the path of its folder."
    raise UnknownNameError(f"{kind} of the family {family!r}", name, names, remedy)


def name_of_own(model: Model) -> str:
    """Returns the name of a model that is in no family: its folder's, and a hash, NAME@HASH.

    Scenes name it so, wherever the folder is.

    Raises:
        ConfigError: See `fleet_tools.sim.model_files.model_files`.
    """
    digest = model_digest(model.file)
    name = model.file.parent.name.removesuffix(f"@{digest}")
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)[:60]}@{digest}"


def _given(kind: Kind, name: str, folder: str) -> Model:
    model = load_model(Path(folder), kind)
    if (present := name_of_own(model)) != name:
        raise ConfigError(
            f"{folder} has been edited since the environment was made (was {name}, is {present}). "
            "Make the environment again."
        )
    return model


def _remedy(kind: Kind, folder: Path, files: list[Path]) -> str:
    if files:
        return " Rename the right one to model.sdf, or move the others away."
    found = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in MESH_SUFFIXES]
    mesh = found[0] if found else Path("MESH")
    return " " + _import_command(kind, "FAMILY", mesh)


def _import_command(kind: Kind, family: str, mesh: Path) -> str:
    return (
        f"A mesh becomes a model with: python -m fleet_tools.assets import "
        f"{shlex.quote(str(mesh))} --kind {kind} "
        f"--family {family} --mass KG --keypoint NAME=X,Y,Z --output DIR"
    )


@lru_cache(maxsize=1024)
def _read_labels(file: Path, modified_ns: int) -> Keypoints:
    # Reading YAML takes half as long as a reset; an edited file is read again.
    return load_yaml(Keypoints, file)


def _family(kind: Kind, family: str, extra_root: str | None) -> dict[str, Path]:
    roots = [assets_root(), *([Path(extra_root)] if extra_root else [])]
    found = [models_below(root, kind, family) for root in roots]
    if not any(found):
        labels = [path for root in roots for path in root.glob(f"{kind}s/*/*/keypoints.yaml")]
        families = {path.parents[1].name for path in labels}
        raise UnknownNameError(f"family of {kind}s", family, families)
    return {name: folder for models in found for name, folder in models.items()}


def find_task_model(task: TaskConfig, kind: Kind, name: str) -> Model:
    """Finds a tool or object of a task, by its name in the family or by path.

    Raises:
        ConfigError, UnknownNameError: There is no such model, or it lacks a keypoint of the task.
    """
    family = task.tool_family if kind == "tool" else task.object_family
    model = find_model(kind, family, name, task.assets, task.given)
    for keypoint in task.keypoints.tool if kind == "tool" else task.keypoints.object:
        model.keypoint(keypoint)
    return model


def admit_model(task: TaskConfig, kind: Kind, name: str) -> tuple[TaskConfig, str]:
    """Admits a model, which may be given by path, to the scenes of a task.

    Args:
        task: The task.
        kind: Kind of the model.
        name: Its name in the family, or its path.

    Returns:
        The task whose scenes may have the model, and its name there.

    Raises:
        ConfigError, UnknownNameError: See `find_task_model`.
    """
    model = find_task_model(task, kind, name)
    family = task.tool_family if kind == "tool" else task.object_family
    if (kind, name) in task.given.folders or name in model_names(kind, family, task.assets):
        return task, name
    own = name_of_own(model)
    folders = {**task.given.folders, (kind, own): str(model.file.parent)}
    return task.with_given(replace(task.given, folders=folders)), own
