"""Subjects of labelling: a model's folder or a mesh, and an example beside it."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import yaml
from pydrake.geometry import Role
from pydrake.math import RigidTransform

from fleet_tools.assets.families import family_names, known_family
from fleet_tools.assets.solids import Solid, joined
from fleet_tools.config.file_access import assets_root
from fleet_tools.config.tasks import load_task
from fleet_tools.config.values import Vector3
from fleet_tools.errors import ConfigError, FleetToolsError, UnknownNameError
from fleet_tools.perception.visible_links import link_triangles
from fleet_tools.sim.add_models import add_model, model_frame
from fleet_tools.sim.catalog import Keypoint, Keypoints, Kind, Model, load_model
from fleet_tools.sim.mesh_reading import file_axes
from fleet_tools.storage.atomic_files import write_file
from fleet_tools.studio.checking.program import read_model
from fleet_tools.studio.importing.collision_geometry import empty_plant
from fleet_tools.studio.importing.enclosed_body import enclosed_body
from fleet_tools.studio.importing.importer import Placement, place_mesh
from fleet_tools.studio.importing.mesh_file import RawMesh, read_mesh
from fleet_tools.studio.importing.program import (
    ImportOptions,
    MaterialOptions,
    keypoints_of_tasks,
    model_name,
    write_model,
)
from fleet_tools.studio.importing.repair import cleaned, repaired_shells
from fleet_tools.studio.importing.settings import LabelSettings, Origin, ScaleSettings
from fleet_tools.studio.labelling.labels import Identity, ModelLabels, Placed
from fleet_tools.studio.labelling.picking import size
from fleet_tools.utils.progress import Tell, silent

SIGNATURE = "# labelled by hand: fleet-tools label"
"""First line of a corrected file; generators and the importer leave such folders alone."""


@dataclass(frozen=True, eq=False)
class ModelSurface:
    """A model as it looks, with joints at their defaults.

    Attributes:
        surface: All visible links as one surface, in M, m.
        links: Poses X_ML of its links by name, (4, 4).
        keypoints: Positions of its keypoints in M, (3,) each, m.
    """

    surface: Solid
    links: dict[str, np.ndarray]
    keypoints: dict[str, np.ndarray]


def read_surface(model: Model) -> ModelSurface:
    """Reads the visible surface of a model.

    Raises:
        ConfigError: Drake cannot read it, nothing of it is visible, or it lacks the link of a
            keypoint.
    """
    plant, scene_graph, _ = empty_plant()
    instance = add_model(plant, scene_graph, model, model.labels.kind)
    frame = model_frame(plant, instance)
    plant.Finalize()
    context = plant.CreateDefaultContext()
    X_MW = frame.CalcPoseInWorld(context).inverse()
    inspector = scene_graph.model_inspector()
    corners, links = [], {}
    for body in map(plant.get_body, plant.GetBodyIndices(instance)):
        X_ML: RigidTransform = X_MW @ body.EvalPoseInWorld(context)
        links[body.name()] = X_ML.GetAsMatrix4()
        body_frame = plant.GetBodyFrameIdOrThrow(body.index())
        if inspector.NumGeometriesForFrameWithRole(body_frame, Role.kPerception):
            triangles = link_triangles(scene_graph, body_frame).astype(float)
            corners.append(X_ML.multiply(triangles.reshape(-1, 3).T).T)
    if not corners:
        raise ConfigError(
            f"{model.file} has no <visual>, so there is nothing to click on. Add one."
        )
    vertices = np.concatenate(corners)
    surface, _ = cleaned(vertices, np.arange(len(vertices)).reshape(-1, 3))
    keypoints = {}
    for name, keypoint in model.labels.keypoints.items():
        X_ML = RigidTransform(links[keypoint.link])
        keypoints[name] = X_ML @ np.array(keypoint.position)
    return ModelSurface(surface, links, keypoints)


@dataclass(frozen=True)
class FolderSubject:
    """A model whose keypoints and grasp are corrected.

    Attributes:
        folder: Its folder.
    """

    folder: Path

    is_mesh = False

    @cached_property
    def model(self) -> Model:
        """The model; a ConfigError says that the folder holds none."""
        return read_model(self.folder)

    @cached_property
    def _read(self) -> ModelSurface:
        return read_surface(self.model)

    @cached_property
    def identity(self) -> Identity:
        """What the model is.

        Raises:
            ConfigError: The folder holds no model, or one of the package, which stays as it is.
        """
        labels = self.model.labels
        folder = self.folder.resolve()
        if folder.is_relative_to(assets_root().resolve()):
            raise ConfigError(
                f"{self.folder} belongs to the package. Copy the folder, and label the copy."
            )
        return Identity(
            labels.kind,
            labels.family,
            folder.name,
            tuple(labels.keypoints),
            folder,
            self.model.file.name,
        )

    def digest(self) -> str:
        """Returns a hash of the model file and its labels."""
        files = self.model.file, self.folder / "keypoints.yaml"
        content = b"".join(file.read_bytes() for file in files)
        return hashlib.blake2b(content, digest_size=16).hexdigest()

    def initial(self) -> ModelLabels:
        """Returns the labels of the folder."""
        labels = ModelLabels()
        for name, p_M in self._read.keypoints.items():
            labels = labels.placed(name, p_M)
        is_tool = self.model.labels.kind == "tool"
        return labels.replaced(grasp=self.model.labels.grasp) if is_tool else labels

    def placed(self, labels: ModelLabels) -> Placed:
        """Returns the surface in M, which no label changes."""
        return Placed(self._read.surface, Placement(np.eye(3), np.zeros(3)))

    def write(self, labels: ModelLabels, tell: Tell = silent) -> list[str]:
        """Replaces `keypoints.yaml`; each keypoint stays on its link.

        Raises:
            OSError: The file cannot be written.
        """
        former = self.model.labels
        changed = Keypoints(
            family=former.family,
            kind=former.kind,
            keypoints={
                name: Keypoint(link=former.keypoints[name].link, position=self._in_link(name, p_M))
                for name, p_M in labels.keypoints.items()
            },
            grasp=labels.grasp or former.grasp,
        )
        content = changed.model_dump(mode="json")
        if former.kind == "object":
            del content["grasp"]
        text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None)
        write_file(self.folder / "keypoints.yaml", f"{SIGNATURE}\n{text}")
        return []

    def _in_link(self, keypoint: str, p_M: Vector3) -> Vector3:
        """Returns a position in M in the frame of a keypoint's link, m."""
        X_ML = self._read.links[self.model.labels.keypoints[keypoint].link]
        x, y, z = np.round(X_ML[:3, :3].T @ (p_M - X_ML[:3, 3]), 9) + 0.0
        return float(x), float(y), float(z)


@dataclass(frozen=True)
class MeshSubject:
    """A mesh that is to be labelled.

    Attributes:
        file: The mesh file.
        kind: Whether the model is a tool or an object.
        family: Its family.
        output: Assets folder to which the model goes.
        name: Name of the model; None takes the file's.
        scale: Size of the model at the beginning.
        keypoints: Names of keypoints that it needs beside the keypoints of the package's tasks.
    """

    file: Path
    kind: Kind
    family: str
    output: Path
    name: str | None = None
    scale: ScaleSettings = field(default_factory=ScaleSettings)
    keypoints: tuple[str, ...] = ()

    is_mesh = True

    @cached_property
    def identity(self) -> Identity:
        """Identity of the model that will be written.

        Raises:
            UnknownNameError: No task of the package has models of this family, and no keypoints
                are named.
            ConfigError: The file cannot be read, or its name is no valid name of a model.
        """
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
        return ModelLabels(scale=self.scale, up=file_axes(self.file).up)

    @cached_property
    def _surface(self) -> Solid:
        """The surface that is imported, in unit and axes of the file, facing outward."""
        placed = place_mesh(self._mesh, self.kind, self.family, self.scale, "z", "keep")
        body, _ = enclosed_body(repaired_shells(placed.surface)[0])
        surface = joined(*body.outer)
        return Solid(surface.vertices / placed.scale, surface.triangles)

    @cached_property
    def _mesh(self) -> RawMesh:
        return read_mesh(self.file)

    def placed(self, labels: ModelLabels) -> Placed:
        """Returns the surface in M, as the importer places it; a ConfigError says why it cannot."""
        found = place_mesh(
            self._mesh, self.kind, self.family, labels.scale, labels.up, self._origin
        )
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

    def write(self, labels: ModelLabels, tell: Tell = silent) -> list[str]:
        """Imports the mesh with its labels; returns the warnings of the import.

        Raises:
            FleetToolsError: No model can be made with these labels.
            OSError: The folder cannot be written, or holds what the importer did not write.
        """
        _, report = write_model(self.import_options(labels), tell)
        return list(report["warnings"])


Subject = FolderSubject | MeshSubject
"""The subject of a labelling session."""

# --- The example: another model of the family -------------------------------------------------


SHARE, GAP = 0.6, 0.15
"""Size of an example beside a surface, and its distance, relative to the surface's longest side."""


@dataclass(frozen=True, eq=False)
class Example:
    """A labelled model.

    Attributes:
        name: Its name.
        surface: Its surface in M, with joints at their defaults, m.
        keypoints: Its keypoints in M, (3,) each, m.
    """

    name: str
    surface: Solid
    keypoints: dict[str, np.ndarray]

    def beside(self, surface: Solid) -> "Example":
        """Returns a smaller or larger one beside a surface, of whose size it is a fixed share."""
        factor = SHARE * size(surface) / size(self.surface)
        low, high = surface.bounds()
        own_low, own_high = (factor * each for each in self.surface.bounds())
        offset = (low + high - own_low - own_high) / 2
        axis = 2 if (high - low)[2] <= (high - low)[0] else 0  # along the shorter side
        offset[axis] = low[axis] - own_high[axis] - GAP * size(surface)
        placed = self.surface.transformed(factor * np.eye(3), offset)
        keypoints = {name: factor * point + offset for name, point in self.keypoints.items()}
        return Example(self.name, placed, keypoints)


def find_example(identity: Identity, task: str | None = None) -> Example | None:
    """Returns a labelled model of a family; None if there is no other.

    It is the first one of the package. Of a user's own family it is the first one that can be read
    in the folder of models of a task, given by name or path, or in the labelled model's.
    """
    return _generated(identity) or next(_neighbours(identity, task), None)


def _generated(identity: Identity) -> Example | None:
    family = known_family(identity.family)
    if family is None or family.kind != identity.kind:
        return None
    member = next(iter(family.catalogue))
    model = family.member(member)
    origins = {link.name: np.array(link.origin) for link in model.links}
    solids = [
        part.solid.transformed(np.eye(3), origins[link.name])
        for link in model.links
        for part in link.parts
    ]
    keypoints = {
        label: origins[point.link] + np.array(point.position)
        for label, point in model.keypoints.items()
    }
    return Example(member, joined(*solids), keypoints)


def _neighbours(identity: Identity, task: str | None) -> Iterator[Example]:
    kind, family = identity.kind, identity.family
    roots = [str(identity.folder.parents[2])]
    if task is not None and (assets := load_task(task).assets) is not None:
        roots.insert(0, assets)
    for root in roots:
        for folder in sorted((Path(root) / f"{kind}s" / family).glob("*/")):
            if folder.resolve() == identity.folder.resolve():
                continue
            try:
                read = read_surface(load_model(folder, kind))
            except FleetToolsError:
                continue
            known = [name for name in identity.keypoints if name in read.keypoints]
            yield Example(folder.name, read.surface, {name: read.keypoints[name] for name in known})
