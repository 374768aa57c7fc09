"""What every tool and every object needs; what a family needs beside it is in `assets.families`.

Bounds on shapes are where the expert begins to fail, which `benchmarks/model_limits.py` measures.
"""

import math

import numpy as np

from fleet_tools.assets.families import known_family
from fleet_tools.assets.model_geometry import (
    ConvexPiece,
    LinkGeometry,
    ModelGeometry,
    signed_distance,
)
from fleet_tools.assets.rules import Rule, Values, of_links, thickness
from fleet_tools.sim.catalog import Kind


def density(link: LinkGeometry) -> float:
    """Returns the mass by the volume of the collision pieces, kg/m^3.

    Overlaps of pieces count twice, up to the volume of the convex hull of all.
    """
    hull = ConvexPiece(np.concatenate([piece.vertices for piece in link.pieces]))
    return link.mass / min(hull.volume, sum(piece.volume for piece in link.pieces))


def distance_of_mass(link: LinkGeometry) -> float:
    """Returns how far the centre of mass is outside of the bounding box, m; 0 inside."""
    low, high = _bounds(link)
    return float(np.linalg.norm(np.maximum(0, np.maximum(low - link.p_MCom, link.p_MCom - high))))


def gyration(link: LinkGeometry) -> float:
    """Returns the radius of gyration by half the diagonal of the bounding box; at most 1."""
    low, high = _bounds(link)
    return math.sqrt(link.moments[-1] / link.mass) / float(np.linalg.norm(high - low) / 2)


def keypoint_distances(geometry: ModelGeometry) -> Values:
    """Returns the distance of each keypoint outside of the model, m; 0 inside."""
    return {name: max(signed_distance(geometry.pieces, p), 0.0) for name, p in geometry.p_M.items()}


def grasp_width(geometry: ModelGeometry) -> Values:
    """Returns the width of the tool between the fingers, m, along y of the grasp frame G."""
    R_MG = geometry.X_MG.rotation().matrix()
    return {"": thickness(geometry, geometry.X_MG.translation(), R_MG[:, 1], reach=0.03)}


def total_mass(geometry: ModelGeometry) -> Values:
    """Returns the mass of all links with collision geometry, kg."""
    return {"": sum(link.mass for link in geometry.links.values())}


def height_of_base(geometry: ModelGeometry) -> Values:
    """Returns z of the lowest point in the model frame, m."""
    return {"": min(float(piece.vertices[:, 2].min()) for piece in geometry.pieces)}


def _bounds(link: LinkGeometry) -> tuple[np.ndarray, np.ndarray]:
    vertices = np.concatenate([piece.vertices for piece in link.pieces])
    return vertices.min(axis=0), vertices.max(axis=0)


RULES = (
    Rule(
        "density",
        of_links(density),
        "g/cm^3",
        low=50.0,
        high=20_000.0,
        reason="stiff foam has 0.05 g/cm^3, tungsten 19.3",
        remedy="Mend the mass (kg) or the size (m): grams, or millimetres that are taken for "
        "metres, are wrong by a thousand.",
    ),
    Rule(
        "centre of mass outside of the bounding box",
        of_links(distance_of_mass),
        "mm",
        high=1e-3,
        reason="the centre of mass lies within the convex hull of a body",
        remedy="Give <inertial> its pose in the link's frame, m.",
    ),
    Rule(
        "radius of gyration by half the diagonal",
        of_links(gyration),
        "",
        low=0.05,
        high=1.0,
        reason="no body within its bounding box has more than 1; a solid one has about 0.5",
        remedy="Give the inertia in kg m^2 about the centre of mass.",
    ),
    Rule(
        "distance outside of the model",
        keypoint_distances,
        "mm",
        high=0.05,
        reason="a point that tasks refer to lies on the model, or in a gap of it",
        remedy="Give the position of the keypoint in m, in the frame of the link it names.",
    ),
)

TOOL_RULES = (
    Rule(
        "width in the hand",
        grasp_width,
        "mm",
        low=2e-3,
        high=0.08,
        reason="the fingers open by 80 mm, and close along y of the grasp frame",
        remedy="Give `grasp` in keypoints.yaml: the pose in the model frame at which the hand "
        "holds the handle, y across it, z away from the palm.",
    ),
    Rule(
        "mass",
        total_mass,
        "kg",
        high=2.5,
        reason="the arm carries 3 kg, and scenes scale masses by up to 1.2",
        remedy="Make it lighter.",
    ),
)

OBJECT_RULES = (
    Rule(
        "height of the lowest point",
        height_of_base,
        "mm",
        low=-5e-4,
        high=1e-3,
        reason="scenes place the model frame on the table",
        remedy="Move the model so that it stands on z = 0.",
    ),
)


def find_rules(kind: Kind, family: str) -> tuple[Rule, ...]:
    """Returns the rules of a family: the general ones, and its own if it is of the package."""
    general = RULES + (TOOL_RULES if kind == "tool" else OBJECT_RULES)
    found = known_family(family)
    return general + (found.rules if found is not None and found.kind == kind else ())
