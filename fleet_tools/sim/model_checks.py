"""Checks of the masses of foreign models: what Drake would silently make up is refused.

Drake gives a link without `<inertial>` 1 kg and 1 kg m^2 (SDFormat) or nothing at all (URDF), and
an impossible inertia that of some sphere, all without an error.
"""

import math
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import Frame, ModelInstanceIndex

from fleet_tools.errors import ConfigError
from fleet_tools.sim.model_xml import read_model_xml

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
        file: SDFormat or URDF file.

    Raises:
        ConfigError: A link lacks mass or inertia, or no body can have them; the message names it.
            Or the file's content is not allowed (`fleet_tools.sim.model_xml`).
    """
    for link in read_model_xml(file).iter("link"):
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
