"""Checks of foreign models: what Drake would silently make up is refused or filled in.

Drake gives a link without `<inertial>` 1 kg and 1 kg m^2 (SDFormat) or nothing at all (URDF), an
impossible inertia that of some sphere, and a shape without hydroelastic properties point contact,
all without an error.
"""

import math
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from pydrake.geometry import (
    AddCompliantHydroelasticProperties,
    ProximityProperties,
    RoleAssign,
    SceneGraph,
)
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import Frame, ModelInstanceIndex

from fleet_tools.errors import ConfigError

MODULUS = 1e8
"""Hydroelastic modulus of a shape that gives none, Pa."""

RESOLUTION = 0.01
"""Resolution hint of a curved shape that gives none: edge length of its mesh, m."""

IMPORT = "`python -m fleet_tools.assets import MESH` computes it from a mesh"


def model_frame(plant: MultibodyPlant, instance: ModelInstanceIndex) -> Frame:
    """Returns the frame in which a model is placed: SDFormat's, or that of URDF's root link."""
    if plant.HasFrameNamed("__model__", instance):
        return plant.GetFrameByName("__model__", instance)
    joints = map(plant.get_joint, plant.GetJointIndices(instance))
    children = {joint.child_body().index() for joint in joints}
    roots = [body for body in plant.GetBodyIndices(instance) if body not in children]
    return plant.get_body(roots[0]).body_frame()


def check_masses(file: Path) -> None:
    """Refuses links with geometry but without a physically possible inertia.

    Args:
        file: SDFormat or URDF file; models that it includes are not checked.

    Raises:
        ConfigError: A link lacks mass or inertia, or no body can have them; the message names it.
    """
    try:
        root = ET.parse(file).getroot()
    except ET.ParseError as error:
        raise ConfigError(f"{file} is not XML: {error}.") from None
    for link in root.iter("link"):
        if link.find("collision") is None and link.find("visual") is None:
            continue
        location = f"{file}: the link {link.get('name')!r}"
        inertial = link.find("inertial")
        if inertial is not None and inertial.get("auto") in ("true", "1"):
            continue  # Drake computes it from the collision shapes and their density
        mass = None if inertial is None else _number(inertial.find("mass"), "value")
        tensor = None if inertial is None else _tensor(inertial.find("inertia"))
        if mass is None or tensor is None:
            lacks = "<inertial>" if inertial is None else "<mass>" if mass is None else "<inertia>"
            raise ConfigError(
                f"{location} lacks {lacks}. Give its mass (kg), centre of mass and inertia about "
                f"it (kg m^2); {IMPORT}."
            )
        moments = np.linalg.eigvalsh(tensor)
        if mass <= 0 or moments[0] <= 0 or moments[2] > (moments[0] + moments[1]) * (1 + 1e-6):
            raise ConfigError(
                f"{location} has the mass {mass:g} kg and principal moments of inertia "
                f"{', '.join(f'{x:.4g}' for x in moments)} kg m^2, which no body can have: each is "
                f"more than 0 and at most the sum of the others. {IMPORT[0].upper()}{IMPORT[1:]}."
            )


def complete_contact(
    plant: MultibodyPlant, scene_graph: SceneGraph, instance: ModelInstanceIndex, file: Path
) -> None:
    """Makes every collision shape of a model compliant that has no hydroelastic type.

    Warns:
        UserWarning: If there are such shapes; the message names them and says how to set a type.

    Raises:
        ConfigError: The model has no collision shape.
    """
    shapes = [
        shape
        for body in plant.GetBodyIndices(instance)
        for shape in plant.GetCollisionGeometriesForBody(plant.get_body(body))
    ]
    if not shapes:
        raise ConfigError(
            f"{file} has no <collision>, so that nothing could touch it. Add convex shapes; "
            "`python -m fleet_tools.assets import MESH` makes them from a mesh."
        )
    source = plant.get_source_id()
    assert source is not None  # the plant is registered with the scene graph
    inspector, completed = scene_graph.model_inspector(), []
    for shape in shapes:
        given = inspector.GetProximityProperties(shape)
        if given.HasProperty("hydroelastic", "compliance_type"):
            continue
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
        completed.append(inspector.GetName(shape))
    if completed:
        names = ", ".join(sorted(completed))
        warnings.warn(
            f"{file}: the collision shapes {names} have neither <drake:compliant_hydroelastic/> "
            f"nor <drake:rigid_hydroelastic/>; they are compliant, with a modulus of {MODULUS:g} "
            "Pa where none is given. A mesh collides as its convex hull. To change this, add "
            "<drake:proximity_properties> to each <collision>.",
            stacklevel=2,
        )


def contact_surface_error(error: RuntimeError, files: list[Path]) -> ConfigError:
    """Returns the error to raise where Drake fails to make a model's contact surfaces."""
    return ConfigError(
        f"Drake cannot make the contact surfaces of {' or '.join(map(str, files))}: {error} Where "
        "more than three planes of a compliant convex mesh meet at a vertex, the hydroelastic "
        "margin cannot offset them: `python -m fleet_tools.assets import MESH` makes pieces for "
        "which it can; or set no margin for that shape, with "
        "<drake:hydroelastic_margin>0</drake:hydroelastic_margin> in its proximity properties."
    )


def _hydroelastic_values(properties: ProximityProperties) -> Iterator[tuple[str, float]]:
    for name in ("resolution_hint", "hydroelastic_modulus"):
        if properties.HasProperty("hydroelastic", name):
            yield name, properties.GetProperty("hydroelastic", name)


def _number(element: ET.Element | None, attribute: str) -> float | None:
    """Reads a number, which SDFormat writes as text and URDF as an attribute."""
    text = None if element is None else element.get(attribute) or element.text
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _tensor(element: ET.Element | None) -> np.ndarray | None:
    if element is None:
        return None
    tensor = np.zeros((3, 3))
    for i, j in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)):
        name = f"i{'xyz'[i]}{'xyz'[j]}"
        text = element.get(name) or element.findtext(name)
        if i == j and text is None:
            return None
        try:
            tensor[i, j] = tensor[j, i] = float(text or 0)
        except ValueError:
            return None
    return tensor
