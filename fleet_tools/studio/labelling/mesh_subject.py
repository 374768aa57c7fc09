"""A mesh file that becomes a model by the importer."""

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from fleet_tools.assets.families import family_names
from fleet_tools.assets.solids import Solid, joined
from fleet_tools.errors import UnknownNameError
from fleet_tools.sim.catalog import Kind
from fleet_tools.studio.importing.enclosed_body import enclosed_body
from fleet_tools.studio.importing.importer import place_mesh
from fleet_tools.studio.importing.mesh_file import RawMesh, read_mesh
from fleet_tools.studio.importing.program import (
    ImportOptions,
    MaterialOptions,
    default_up,
    model_name,
    write_model,
)
from fleet_tools.studio.importing.repair import repaired_shells
from fleet_tools.studio.importing.report import keypoints_of_tasks
from fleet_tools.studio.importing.settings import LabelSettings, Origin, ScaleSettings
from fleet_tools.studio.labelling.labels import Identity, ModelLabels, Placed


@dataclass(frozen=True)
class MeshSubject:
    """A mesh that is to be labelled.

    Attributes:
        file: The mesh file.
        kind: Whether the model is a tool or an object.
        family: Its family.
        output: Assets folder to which the model goes.
        name: Name of the model; None takes that of the file.
        scale: Size of the model at the beginning.
        keypoints: Names of keypoints that it needs beside those of the package's tasks.
    """

    file: Path
    kind: Kind
    family: str
    output: Path
    name: str | None = None
    scale: ScaleSettings = field(default_factory=ScaleSettings)
    keypoints: tuple[str, ...] = ()

    is_mesh = True

    @property
    def identity(self) -> Identity:
        """What the model will be.

        Raises:
            UnknownNameError: No task of the package has models of this family, and no keypoints
                are named.
            ConfigError: The file cannot be read, or its name is not that of a model.
        """
        return self._identity

    @cached_property
    def _identity(self) -> Identity:
        keypoints = dict.fromkeys((*keypoints_of_tasks(self.kind, self.family), *self.keypoints))
        if not keypoints:
            known = [family for family in family_names() if keypoints_of_tasks(self.kind, family)]
            remedy = "A family of your own needs --task FILE, or --keypoint-names NAME,NAME,..."
            raise UnknownNameError(f"family of {self.kind}s", self.family, known, remedy)
        read_mesh(self.file)
        name = self.name or model_name(self.file)
        return Identity(
            self.kind,
            self.family,
            name,
            tuple(keypoints),
            self.output / f"{self.kind}s" / self.family / name,
            self.file.name,
        )

    def digest(self) -> str:
        """Returns a hash of the file."""
        return hashlib.blake2b(self.file.read_bytes(), digest_size=16).hexdigest()

    def initial(self) -> ModelLabels:
        """Returns labels without any point."""
        return ModelLabels(scale=self.scale, up=default_up(self.file))

    @cached_property
    def _surface(self) -> Solid:
        """The surface that is imported, in unit and axes of the file, facing outward.

        Raises:
            ConfigError: The mesh cannot be read, scaled or repaired.
        """
        placed = place_mesh(self._mesh, self.kind, self.scale, "z", "keep")
        body, _ = enclosed_body(repaired_shells(placed.surface)[0])
        surface = joined(*body.outer)
        return Solid(surface.vertices / placed.scale, surface.triangles)

    @cached_property
    def _mesh(self) -> RawMesh:
        return read_mesh(self.file)

    def placed(self, labels: ModelLabels) -> Placed:
        """Returns the surface in M, as the importer places it.

        Raises:
            ConfigError: The mesh cannot be read, scaled or repaired.
        """
        found = place_mesh(self._mesh, self.kind, labels.scale, labels.up, self._origin)
        surface = self._surface
        vertices = found.placement.vertices(surface.vertices)
        return Placed(Solid(vertices, surface.triangles), found.placement)

    @property
    def _origin(self) -> Origin:
        return "keep" if self.kind == "tool" else "base"

    def import_options(self, labels: ModelLabels) -> ImportOptions:
        """Returns the options of `assets import` that make the model.

        Raises:
            pydantic.ValidationError: There is neither a mass nor a material.
        """
        return ImportOptions(
            files=(self.file,),
            kind=self.kind,
            family=self.family,
            output=self.output,
            name=self.identity.name,
            material=MaterialOptions(mass=labels.mass, material=labels.material),
            scale=labels.scale,
            up=labels.up,
            origin=self._origin,
            label=LabelSettings(
                keypoint=tuple(labels.keypoints.items()), grasp=labels.grasp, points_in="mesh"
            ),
        )

    def write(self, labels: ModelLabels) -> list[str]:
        """Imports the mesh with its labels; returns the warnings of the import.

        Raises:
            FleetToolsError: No model can be made with these labels.
            OSError: The folder cannot be written, or holds what the importer did not write.
        """
        _, report = write_model(self.import_options(labels))
        return list(report["warnings"])
