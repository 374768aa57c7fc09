"""Points, parts and heights of models, for the laws of families."""

import numpy as np

from fleet_tools.assets.model_description import LinkDescription, ModelDescription, PartDescription
from fleet_tools.assets.solids import Solid


def surface_points(solid: Solid, per_edge: int = 8) -> np.ndarray:
    """Returns points on all triangles of a solid, (n, 3), m, with so many segments of an edge."""
    steps = range(per_edge + 1)
    weights = [(i, j, per_edge - i - j) for i in steps for j in steps if i + j <= per_edge]
    corners = solid.vertices[solid.triangles]
    return np.einsum("wc,tci->twi", np.array(weights) / per_edge, corners).reshape(-1, 3)


def points_of(model: ModelDescription, *names: str) -> list[np.ndarray]:
    """Returns keypoints in the frames of their links, (3,) each."""
    return [np.array(model.keypoints[name].position) for name in names]


def part_of(link: LinkDescription, name: str) -> PartDescription:
    """Returns a part of a link by its name."""
    (found,) = [part for part in link.parts if part.name == name]
    return found


def heights(link: LinkDescription, part: str) -> np.ndarray:
    """Returns heights of a part's vertices in the model frame, in both geometries, (n,), m."""
    found = part_of(link, part)
    solids = (found.solid, *found.collision)
    return link.origin[2] + np.concatenate([solid.vertices[:, 2] for solid in solids])
