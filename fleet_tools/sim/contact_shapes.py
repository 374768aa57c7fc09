"""Prepares collision shapes of foreign models for hydroelastic contact, at load.

Drake gives a shape without hydroelastic properties point contact, and fails, at once or in the
middle of an episode, where a hydroelastic mesh is degenerate; both without naming the shape.
"""

import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydrake.geometry import (
    AddCompliantHydroelasticProperties,
    Convex,
    GeometryId,
    ProximityProperties,
    RoleAssign,
    SceneGraph,
    SourceId,
    VolumeMesh,
)
from pydrake.math import RigidTransform
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import BodyIndex, ModelInstanceIndex, RigidBody, WeldJoint

from fleet_tools.errors import ConfigError
from fleet_tools.sim.contact_meshes import MendedShape, mend_alone, mend_shape, shape_name
from fleet_tools.sim.model_xml import path_of
from fleet_tools.sim.resting_faces import RestingSide, resting_sides

MODULUS = 1e8
"""Hydroelastic modulus of a shape that gives none, Pa."""

RESOLUTION = 0.01
"""Resolution hint of a curved shape that gives none: edge length of its mesh, m."""

DOUBLING = 100
"""Number of elements of a shape whose contact doubles the duration of a step, about: a spatula's
blade of 100 / 388 / 1204 elements took 2.1 / 4.5 / 12 times as long as the package's of 12."""

MANY_ELEMENTS = 300
"""Number of elements of a shape beyond which a warning tells the cost of its contact."""

IMPORT = "`python -m fleet_tools.assets import MESH`"


def complete_contact(
    plant: MultibodyPlant,
    scene_graph: SceneGraph,
    instance: ModelInstanceIndex,
    file: Path,
    *,
    free: bool = False,
) -> None:
    """Makes every collision shape of a model compliant that has no hydroelastic type.

    Then it repairs the hydroelastic meshes with which contact could fail (`contact_meshes`).

    Args:
        plant: Plant with the model, not finalized yet.
        scene_graph: Its scene graph.
        instance: Model instance of the model.
        file: File of the model.
        free: Whether its links can lie on the table by themselves.

    Warns:
        UserWarning: Shapes had no type, were mended, make contact slow, or have upright sides on
            which Drake's solver stops too early (`resting_faces`); the message names them.

    Raises:
        ConfigError: The model has no collision shape, or contact with one could fail.
    """
    bodies = [plant.get_body(index) for index in plant.GetBodyIndices(instance)]
    shapes = [shape for body in bodies for shape in plant.GetCollisionGeometriesForBody(body)]
    if not shapes:
        raise ConfigError(
            f"{file} has no <collision>, so nothing can touch it. Add convex shapes; {IMPORT} "
            "makes them from a mesh."
        )
    source = plant.get_source_id()
    assert source is not None  # the plant is registered with the scene graph
    completed = [s for s in shapes if _complete(scene_graph, source, s)]
    if completed:
        names = [shape_name(scene_graph, shape) for shape in completed]
        _warn(
            f"{file}: the collision shapes {', '.join(sorted(names))} have neither "
            "<drake:compliant_hydroelastic/> nor <drake:rigid_hydroelastic/>; they are compliant, "
            f"with a modulus of {MODULUS:g} Pa where none is given. A mesh collides as its convex "
            "hull. To change this, add <drake:proximity_properties> to each <collision>."
        )
    mended = [mend_shape(scene_graph, source, shape) for shape in shapes]
    _check_mended(mended, file)
    _warn_of_cost(mended, file)
    if free:
        found = [sides_with_margin(scene_graph, group) for group in welded_groups(plant, instance)]
        _warn_of_upright([each for sides in found for each in sides if each.upright], file)


@dataclass(frozen=True)
class WeldedBody:
    """A body of a group that moves as one.

    Attributes:
        body: The body B.
        X_GB: Its pose in the group's frame G, which is the frame of the first body.
        shapes: Its collision shapes.
    """

    body: RigidBody
    X_GB: RigidTransform
    shapes: Sequence[GeometryId]


def welded_groups(plant: MultibodyPlant, instance: ModelInstanceIndex) -> list[list[WeldedBody]]:
    """Returns the bodies of a model in groups that are welded together."""
    joints = [plant.get_joint(index) for index in plant.GetJointIndices(instance)]
    welds = [joint for joint in joints if isinstance(joint, WeldJoint)]
    poses: dict[BodyIndex, RigidTransform] = {}
    groups = []
    for first in plant.GetBodyIndices(instance):
        group = [] if first in poses else [first]
        poses.setdefault(first, RigidTransform())
        for index in group:  # which grows
            for weld in welds:
                X_PF, X_BM = (
                    frame.GetFixedPoseInBodyFrame()
                    for frame in (weld.frame_on_parent(), weld.frame_on_child())
                )
                X_PB = X_PF @ weld.X_FM() @ X_BM.inverse()
                parent, child = weld.parent_body().index(), weld.child_body().index()
                for here, there, X in ((parent, child, X_PB), (child, parent, X_PB.inverse())):
                    if here == index and there not in poses:
                        poses[there] = poses[here] @ X
                        group.append(there)
        bodies = [plant.get_body(index) for index in group]
        groups.append(
            [
                WeldedBody(b, poses[b.index()], plant.GetCollisionGeometriesForBody(b))
                for b in bodies
            ]
        )
    return [group for group in groups if group]


def centre_of_mass(group: Sequence[WeldedBody]) -> np.ndarray:
    """Returns the centre of mass of welded bodies in their group's frame, (3,), m."""
    masses = [each.body.default_mass() for each in group]
    return np.average([each.X_GB @ each.body.default_com() for each in group], 0, masses)


def sides_with_margin(
    scene_graph: SceneGraph, group: Sequence[WeldedBody]
) -> tuple[RestingSide, ...]:
    """Returns the sides of a free group, see `resting_sides`."""
    corners = corners_with_margin(scene_graph, group)
    return resting_sides(corners, centre_of_mass(group)) if corners else ()


def corners_with_margin(
    scene_graph: SceneGraph, group: Sequence[WeldedBody]
) -> dict[str, np.ndarray]:
    """Returns corners, (n, 3), m, of compliant shapes with a hydroelastic margin by their name."""
    inspector, corners = scene_graph.model_inspector(), {}
    default = scene_graph.get_config().default_proximity_properties.margin or 0.0
    for each in group:
        for shape in each.shapes:
            mesh = inspector.maybe_get_hydroelastic_mesh(shape)
            properties = inspector.GetProximityProperties(shape)
            margin = properties.GetPropertyOrDefault("hydroelastic", "margin", default)
            if isinstance(mesh, VolumeMesh) and margin > 0.0:
                X_GS = each.X_GB @ inspector.GetPoseInFrame(shape)
                name = f"{shape_name(scene_graph, shape)} of {each.body.name()}"
                corners[name] = X_GS.multiply(np.array(mesh.vertices()).T).T
    return corners


def contact_surface_error(error: BaseException, files: Sequence[Path]) -> ConfigError:
    """Returns the error to raise where Drake fails to make the contact surfaces of models."""
    return ConfigError(
        f"Drake cannot make the contact surfaces of {' or '.join(map(str, files))}: {error} "
        f"{_remedy(sorted(name for file in files for name in _faulty_collisions(file)))}"
    )


def contact_hint(error: RuntimeError, files: Sequence[Path]) -> str:
    """Explains an error of Drake in the middle of an episode by the models in contact.

    Args:
        error: The error.
        files: Files of the models.

    Returns:
        A sentence to follow the error's message; empty if the error is not one of contact meshes.
    """
    if "instantiate plane" not in str(error):
        return ""
    return (
        f" A triangle of a collision shape of {' or '.join(map(str, files))} is too small for "
        f"contact. {_remedy([])}"
    )


def _complete(scene_graph: SceneGraph, source: SourceId, shape: GeometryId) -> bool:
    """Makes a shape compliant if it has no hydroelastic type; returns whether it had none."""
    given = scene_graph.model_inspector().GetProximityProperties(shape)
    if given.HasProperty("hydroelastic", "compliance_type"):
        return False
    properties = ProximityProperties(given)
    values = dict(_hydroelastic_values(given))
    for name in values:
        properties.RemoveProperty("hydroelastic", name)
    AddCompliantHydroelasticProperties(
        values.get("resolution_hint", RESOLUTION),
        values.get("hydroelastic_modulus", MODULUS),
        properties,
    )
    scene_graph.AssignRole(source, shape, properties, RoleAssign.kReplace)
    return True


def _hydroelastic_values(properties: ProximityProperties) -> Iterator[tuple[str, float]]:
    for name in ("resolution_hint", "hydroelastic_modulus"):
        if properties.HasProperty("hydroelastic", name):
            yield name, properties.GetProperty("hydroelastic", name)


def _check_mended(shapes: Sequence[MendedShape], file: Path) -> None:
    """Reports what was mended, and refuses what was not."""
    broken = [shape for shape in shapes if shape.error]
    if broken:
        reasons = "; ".join(f"{shape.name}: {shape.error}" for shape in broken)
        raise ConfigError(
            f"{file}: contact with some collision shapes could fail in the middle of an episode "
            f"({reasons}). {_remedy([shape.name for shape in broken])}"
        )
    mended = [shape for shape in shapes if shape.without_margin]
    if mended:
        moved = max(shape.moved for shape in mended)
        also = f", and without vertices up to {moved * 1e6:.2g} um outside" if moved else ""
        _warn(
            f"{file}: Drake cannot offset the planes of the collision shapes "
            f"{', '.join(sorted(shape.name for shape in mended))} by a hydroelastic margin, "
            f"because more than three meet at a vertex. They are used with a margin of 0{also}. "
            f"{IMPORT} makes pieces with a margin."
        )


def _warn_of_cost(shapes: Sequence[MendedShape], file: Path) -> None:
    costly = [shape for shape in shapes if shape.elements > MANY_ELEMENTS]
    if costly:
        names = ", ".join(f"{shape.name} ({shape.elements})" for shape in costly)
        ratio = 1 + max(shape.elements for shape in costly) / DOUBLING
        _warn(
            f"{file}: contact with the collision shapes {names} is slow, for the number of "
            f"elements in parentheses: a step takes up to about {ratio:.0f} times as long as with "
            f"the package's models. Simplify them; {IMPORT} makes pieces of few elements."
        )


def _warn_of_upright(sides: Sequence[RestingSide], file: Path) -> None:
    if sides:
        names = ", ".join(dict.fromkeys(side.shape for side in sides))
        _warn(
            f"{file}: when the object lies flat, sides of the collision shapes {names} are "
            f"upright, such as {sides[0]}. Drake's contact solver then stops too early, and all "
            f"forces and motions are wrong. `python -m fleet_tools.assets mend FOLDER` lets them "
            f"lean by micrometres; {IMPORT} makes such pieces of a mesh."
        )


def _remedy(names: Sequence[str]) -> str:
    where = f"For the collision shapes {', '.join(names)}: " if names else ""
    return (
        f"{where}{IMPORT} makes convex pieces of a mesh with which contact cannot fail; or merge "
        "vertices that nearly coincide, give curved shapes a larger resolution hint, and set no "
        "margin with <drake:hydroelastic_margin>0</drake:hydroelastic_margin> in "
        "<drake:proximity_properties>."
    )


def _faulty_collisions(file: Path) -> Iterator[str]:
    """Yields the names of collision shapes whose mesh, by itself, Drake cannot use."""
    for collision in ET.parse(file).getroot().iter("collision"):
        mesh = collision.find("geometry/mesh")
        if mesh is None:
            continue
        uri = (mesh.get("filename") or mesh.findtext("uri") or "").strip()
        path = path_of(uri)
        if path is not None and mend_alone(Convex(file.parent / path), margin=0.0).error:
            yield collision.get("name") or uri


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)
