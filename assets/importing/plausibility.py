"""Plausibility checks of an imported model: warnings about settings that are probably wrong."""

from collections.abc import Mapping

import numpy as np

from fleet_tools.assets.importing.enclosed_body import EnclosedBody
from fleet_tools.assets.importing.settings import ImportSettings
from fleet_tools.assets.model_description import Position

NEAR_SURFACE = 0.01
"""Distance from the surface, m, within which keypoints are expected."""


def plausibility_warnings(
    body: EnclosedBody,
    keypoints: Mapping[str, Position],
    mass: float,
    density: float,
    settings: ImportSettings,
) -> list[str]:
    """Checks a body, its keypoints and its mass.

    Args:
        body: The body, in the model frame.
        keypoints: Positions of the keypoints in the model frame, m, by name.
        mass: Mass, kg.
        density: Density, kg/m^3.
        settings: Settings of the import.

    Returns:
        Warnings for the user.
    """
    warnings = []
    corners = np.concatenate([solid.vertices[solid.triangles] for solid in body.outer])
    low, high = corners.min(axis=(0, 1)), corners.max(axis=(0, 1))
    for name, position in keypoints.items():
        distance = _distance(corners, np.array(position))
        if distance > NEAR_SURFACE:
            warnings.append(
                f"the keypoint {name} is {distance:.3g} m from the surface, which lies within "
                f"{_text(low)} and {_text(high)}; points in the file's own unit and axes are "
                "given with --points-in mesh"
            )
    if settings.mass is not None and density < 20:
        warnings.append(f"{density:.3g} kg/m^3 is lighter than foam: is the size right?")
    if settings.kind == "tool" and mass > 2.5:
        warnings.append(f"{mass:.3g} kg is close to the arm's payload of 3 kg or beyond")
    if settings.kind == "tool" and settings.labels.grasp is None:
        distance = _distance(corners, np.zeros(3))
        if distance > 0.03 or (low > 0).any() or (high < 0).any():
            warnings.append(
                f"without --grasp the hand holds the model's origin, which is {distance:.3g} m "
                "from the surface; --grasp X,Y,Z says where the handle is held"
            )
    return warnings


def _distance(corners: np.ndarray, point: np.ndarray) -> float:
    """Returns the distance of a point, (3,), from triangles, (m, 3 corners, 3), m."""
    from trimesh.triangles import closest_point

    nearest = closest_point(corners, np.broadcast_to(point, (len(corners), 3)))
    return float(np.linalg.norm(nearest - point, axis=1).min())


def _text(position: np.ndarray) -> str:
    return "(" + ", ".join(f"{x:.3g}" for x in position) + ")"
