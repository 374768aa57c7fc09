"""Import of an object with a joint: a second mesh that moves against a brake."""

import math
from dataclasses import dataclass, replace

import numpy as np

from fleet_tools.assets.model_description import (
    JointDescription,
    KeypointDescription,
    LinkDescription,
    as_position,
)
from fleet_tools.assets.solids import MassProperties
from fleet_tools.errors import ConfigError
from fleet_tools.studio.importing.importer import (
    ImportedModel,
    Placement,
    contact_checked,
    import_mesh,
    place_mesh,
)
from fleet_tools.studio.importing.mesh_file import RawMesh
from fleet_tools.studio.importing.settings import (
    ImportSettings,
    JointSettings,
    LabelSettings,
    ScaleSettings,
)
from fleet_tools.utils.progress import Tell, silent

ADDED_INERTIA = {"prismatic": 0.1, "revolute": 1e-3}
"""Inertia that is added along the joint, kg or kg m^2, so that the brake holds
(`JointDescription`)."""


@dataclass(frozen=True)
class JointedModel:
    """An object with a joint, and the findings of the imports of its two parts.

    Attributes:
        base: The import of the fixed part; its model is the whole object.
        moving: The import of the part that moves, in the frame of the object.
    """

    base: ImportedModel
    moving: ImportedModel


def import_jointed(
    base: RawMesh,
    moving: RawMesh,
    settings: ImportSettings,
    joint: JointSettings,
    tell: Tell = silent,
) -> JointedModel:
    """Makes an object of two meshes, in one unit and in the same axes, that a joint connects.

    The settings are of the base, and the joint has mass and keypoints of the part that moves.

    Raises:
        ConfigError: A part cannot be imported, or the two do not fit together.
        MissingLibraryError, NativeLibraryError: See `import_mesh`.
    """
    _require_object(settings, joint)
    placed = place_mesh(
        base, settings.kind, settings.family, settings.scale, settings.up, settings.origin
    )
    fixed = import_mesh(base, settings, tell)
    part = import_mesh(
        RawMesh(placed.placement.vertices(moving.vertices), moving.triangles, moving.notes),
        _settings_of_moving(settings, joint, placed.placement),
        lambda stage: tell(f"the part that moves: {stage}"),
    )
    model, moved = fixed.model, part.model
    axis, at = _axis_and_point(settings, joint, placed.placement)
    assert joint.limits is not None
    low, high = joint.limits if joint.joint == "prismatic" else np.deg2rad(joint.limits).tolist()
    whole = replace(
        model,
        links=(*model.links, _from(moved.links[0], at)),
        joints=(
            JointDescription(
                name=joint.joint_name,
                kind=joint.joint,
                parent=model.links[0].name,
                child=moved.links[0].name,
                axis=as_position(axis),
                limits=(low, high),
                resistance=joint.resistance,
                inertia=ADDED_INERTIA[joint.joint],
            ),
        ),
        keypoints={
            **model.keypoints,
            **{
                name: KeypointDescription(point.link, as_position(np.array(point.position) - at))
                for name, point in moved.keypoints.items()
            },
        },
    )
    return JointedModel(replace(fixed, model=contact_checked(whole)), part)


def _require_object(settings: ImportSettings, joint: JointSettings) -> None:
    if settings.kind != "object":
        raise ConfigError("--moving is only for objects (--kind object): tools must be rigid.")
    twice = sorted({name for name, _ in joint.moving_keypoint} & settings.labels.keypoints.keys())
    if twice:
        raise ConfigError(
            f"{', '.join(twice)}: given both by --keypoint and by --moving-keypoint. Give each "
            "keypoint once, on the part where it lies."
        )
    if settings.mass is not None and joint.moving_mass is None:
        raise ConfigError(
            "--mass is the mass of the fixed part only. Give --moving-mass, too, or replace both "
            "by --density or --material."
        )


def _settings_of_moving(
    settings: ImportSettings, joint: JointSettings, placement: Placement
) -> ImportSettings:
    """Returns the settings with which the part that moves is imported in the model frame."""
    points = dict(joint.moving_keypoint)
    if settings.labels.points_in == "mesh":
        points = {name: as_position(placement.point(p)) for name, p in points.items()}
    return replace(
        settings,
        family=f"{settings.name}_{joint.joint_name}",  # one part has not the family's usual size
        name=f"{settings.name}_{joint.joint_name}",
        mass=joint.moving_mass,
        up="z",
        origin="keep",
        scale=ScaleSettings(scale=1.0),
        labels=LabelSettings(keypoint=tuple(points.items())),
    )


def _axis_and_point(
    settings: ImportSettings, joint: JointSettings, placement: Placement
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the axis, a unit vector, and a point on it, (3,) each, in the model frame, m."""
    axis, at = np.array(joint.axis), np.array(joint.at)
    if settings.labels.points_in == "mesh":
        axis, at = placement.matrix @ axis, placement.point(joint.at)
    return axis / math.hypot(*axis), np.round(at, 9)


def _from(link: LinkDescription, at: np.ndarray) -> LinkDescription:
    """Returns a link of the model frame with its own origin at a point, (3,), m."""
    parts = tuple(
        replace(
            part,
            solid=part.solid.transformed(np.eye(3), -at),
            collision=tuple(each.transformed(np.eye(3), -at) for each in part.collision),
        )
        for part in link.parts
    )
    body = link.mass_properties()
    inertial = MassProperties(body.mass, body.centre - at, body.inertia)
    return LinkDescription(link.name, parts, as_position(at), inertial)
