"""Plausibility checks of an imported model: warnings about settings that are probably wrong."""

from collections.abc import Mapping

import numpy as np

from fleet_tools.assets.importing.convex_hull import convex_hull
from fleet_tools.assets.importing.enclosed_body import EnclosedBody
from fleet_tools.assets.importing.fidelity import distance_outside
from fleet_tools.assets.importing.settings import ImportSettings
from fleet_tools.assets.model_description import Position

NEAR_SURFACE = 0.01
"""Distance from the surface or, in a gap, from the hull, m, within which keypoints are expected."""


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
    hull = convex_hull(corners.reshape(-1, 3))
    for name, position in keypoints.items():
        point = np.array(position)
        distance = _distance(corners, point)
        # A point in a gap, such as the middle of a jaw, is far from the surface, and in the hull.
        in_gap = hull is not None and distance_outside(point[None], [hull]) < NEAR_SURFACE
        if distance > NEAR_SURFACE and not in_gap:
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


def deviation_warnings(deviations: Mapping[str, float], settings: ImportSettings) -> list[str]:
    """Checks that the collision geometry has the shape of the mesh near the keypoints.

    Args:
        deviations: Distance of the collision geometry from the mesh near each keypoint, m.
        settings: Settings of the import.
    """
    far = {name: x for name, x in deviations.items() if x > 4 * settings.geometry.fidelity}
    if not far:
        return []
    listed = ", ".join(f"{name} ({x * 1000:.2g} mm)" for name, x in far.items())
    return [
        f"the collision geometry deviates from the mesh near the keypoint(s) {listed}; model its "
        "parts as convex bodies that overlap, or try more --pieces or a smaller --concavity"
    ]


def _distance(corners: np.ndarray, point: np.ndarray) -> float:
    """Returns the distance of a point, (3,), from triangles, (m, 3 corners, 3), m."""
    from trimesh.triangles import closest_point

    nearest = closest_point(corners, np.broadcast_to(point, (len(corners), 3)))
    return float(np.linalg.norm(nearest - point, axis=1).min())


def _text(position: np.ndarray) -> str:
    return "(" + ", ".join(f"{x:.3g}" for x in position) + ")"
