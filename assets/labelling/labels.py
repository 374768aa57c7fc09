"""What a person has labelled, as values: every change makes a new one, and undo goes back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleet_tools.assets.materials import MaterialName
from fleet_tools.config.geometry import Pose
from fleet_tools.config.values import Positive, Value, Vector3
from fleet_tools.studio.importing.settings import ScaleSettings, UpAxis


class Labels(Value):
    """The labels of a model, and what else an import has to be told.

    Positions are those of `assets import --points-in mesh`: in unit and axes of the file. So they
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

    def replaced(self, **changes: Any) -> "Labels":
        """Returns the labels with other values.

        Raises:
            pydantic.ValidationError: A value does not fit.
        """
        return Labels.model_validate(dict(self) | changes)

    def placed(self, keypoint: str, position: np.ndarray) -> "Labels":
        """Returns the labels with a keypoint at a position, (3,)."""
        x, y, z = (float(value) for value in position)
        return self.replaced(keypoints={**self.keypoints, keypoint: (x, y, z)})

    def removed(self, keypoint: str) -> "Labels":
        """Returns the labels without a keypoint."""
        rest = {name: p for name, p in self.keypoints.items() if name != keypoint}
        return self.replaced(keypoints=rest)

    def positions(self) -> Mapping[str, np.ndarray]:
        """Returns the positions as arrays, (3,)."""
        return {name: np.array(position) for name, position in self.keypoints.items()}


@dataclass(frozen=True)
class History:
    """A value, and those that were before it.

    Attributes:
        now: The present labels.
        past: Former labels, the latest last.
    """

    now: Labels
    past: tuple[Labels, ...] = ()

    def then(self, labels: Labels) -> "History":
        """Returns the history after a change; labels that are the same change nothing."""
        return self if labels == self.now else History(labels, (*self.past, self.now))

    def undone(self) -> "History":
        """Returns the history before the last change; the same where nothing has changed."""
        return History(self.past[-1], self.past[:-1]) if self.past else self
