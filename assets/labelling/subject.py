"""What can be labelled: a mesh, which becomes a model, or the folder of a model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from fleet_tools.assets.labelling.labels import Labels
from fleet_tools.assets.solids import Solid
from fleet_tools.sim.catalog import Kind
from fleet_tools.studio.importing.importer import Placement


@dataclass(frozen=True)
class Identity:
    """What the model is.

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

    def position(self, p_M: np.ndarray) -> np.ndarray:
        """Returns a position in M, (3,), m, in the coordinates of labels."""
        return self.placement.inverse(p_M)


class Subject(Protocol):
    """What is labelled."""

    @property
    def identity(self) -> Identity:
        """What the model is."""
        ...

    @property
    def is_mesh(self) -> bool:
        """Whether it still has to be given its size and its mass."""
        ...

    def digest(self) -> str:
        """Returns a hash of what is labelled, as it is on the disk."""
        ...

    def initial(self) -> Labels:
        """Returns the labels that it has at the beginning."""
        ...

    def placed(self, labels: Labels) -> Placed:
        """Returns its surface in M.

        Raises:
            ConfigError: It cannot be scaled as the labels say.
        """
        ...

    def write(self, labels: Labels) -> list[str]:
        """Writes the model's folder with all labels; returns what a person should look at.

        Raises:
            FleetToolsError: No model can be made with these labels.
            OSError: The folder cannot be written, or must not be overwritten.
        """
        ...


def missing(identity: Identity, labels: Labels, needs_mass: bool) -> list[str]:
    """Returns what has to be labelled before a model can be written."""
    lacking = [name for name in identity.keypoints if name not in labels.keypoints]
    if identity.kind == "tool" and labels.grasp is None:
        lacking.append("hand")
    if needs_mass and labels.mass is None and labels.material is None:
        lacking.append("mass, or material")
    return lacking
