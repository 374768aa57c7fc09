"""A person's labels as values, and the file that keeps unfinished ones."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fleet_tools.assets.model_description import MaterialName
from fleet_tools.assets.solids import Solid
from fleet_tools.config.geometry import Pose
from fleet_tools.config.values import Positive, Value, Vector3, load_yaml
from fleet_tools.errors import ConfigError
from fleet_tools.sim.catalog import Kind, UpAxis
from fleet_tools.storage.atomic_files import write_file
from fleet_tools.studio.importing.importer import Placement
from fleet_tools.studio.importing.settings import ScaleSettings


class ModelLabels(Value):
    """The labels of a model, and the other inputs of an import.

    Positions are as in `assets import --points-in mesh`: in unit and axes of the file. So they
    stay where they were clicked when the scale changes. Those of a model folder are in M, m.
    """

    keypoints: dict[str, Vector3] = {}
    """Positions by name."""
    grasp: Pose | None = None
    """Pose of the hand; its position is in unit and axes of the file, its angles are in M."""
    scale: ScaleSettings = ScaleSettings()
    """Size of the model."""
    up: UpAxis = "z"
    """Axis of the file that becomes z."""
    mass: Positive | None = None
    """Mass, kg; None takes the material's density."""
    material: MaterialName | None = None
    """Material; None is the importer's plain one."""

    def replaced(self, **changes: Any) -> "ModelLabels":
        """Returns the labels with other values.

        Raises:
            pydantic.ValidationError: A value does not fit.
        """
        return ModelLabels.model_validate(dict(self) | changes)

    def placed(self, keypoint: str, position: np.ndarray) -> "ModelLabels":
        """Returns the labels with a keypoint at a position, (3,)."""
        x, y, z = (float(value) for value in position)
        return self.replaced(keypoints={**self.keypoints, keypoint: (x, y, z)})


class Draft(Value):
    """The file beside a model's folder that keeps labels while a person works."""

    labels_of: str
    """Hash of the labelled mesh."""
    labels: ModelLabels
    """The labels."""


def draft_file(folder: Path) -> Path:
    """Returns the file of a model's folder."""
    return folder.with_name(f"{folder.name}.labels.yaml")


def write_draft(file: Path, draft: Draft) -> None:
    """Writes a draft, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(draft.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    write_file(file, f"# written by fleet-tools label, which reads it again\n{text}")


def read_draft(file: Path, labels_of: str) -> ModelLabels | None:
    """Returns the labels of a draft; None if there is no file.

    Raises:
        ConfigError: The file is damaged, or has the labels of something else.
    """
    if not file.exists():
        return None
    draft = load_yaml(Draft, file)
    if draft.labels_of != labels_of:
        raise ConfigError(
            f"{file} has labels of another mesh, or of an earlier version of it. Move this file "
            "away, or choose another --name."
        )
    return draft.labels


@dataclass(frozen=True)
class Identity:
    """Kind, family, name and keypoints of the model.

    Attributes:
        kind: Whether it is a tool or an object.
        family: Its family.
        name: Its name.
        keypoints: Names of the keypoints that it needs.
        folder: Its folder.
        source: Name of the file that is labelled.
    """

    kind: Kind
    family: str
    name: str
    keypoints: tuple[str, ...]
    folder: Path
    source: str


@dataclass(frozen=True, eq=False)
class Placed:
    """The surface of a subject in the model frame M.

    Attributes:
        surface: The surface, which faces outward, m.
        placement: From the coordinates of labels to M.
    """

    surface: Solid
    placement: Placement
