"""Solids as Wavefront OBJ text; the same solid gives the same text."""

import math

import numpy as np

from fleet_tools.assets.decimals import decimal
from fleet_tools.assets.solids import Solid

CREASE_DEG = 35.0
"""Faces that meet at less than this angle are shaded as one smooth surface."""


def corner_normals(solid: Solid) -> np.ndarray:
    """Returns unit normals for shading, smooth across edges up to `CREASE_DEG`, sharp beyond.

    Args:
        solid: Solid without degenerate triangles.

    Returns:
        Normals at the corners of each triangle, (m, 3 corners, 3).
    """
    a, b, c = np.moveaxis(solid.vertices[solid.triangles], 1, 0)
    areas = np.cross(b - a, c - a)  # (m, 3), along the normals, twice the areas long
    units = areas / np.linalg.norm(areas, axis=1, keepdims=True)
    normals = np.empty((len(solid.triangles), 3, 3))
    for vertex in range(len(solid.vertices)):
        around, corner = np.nonzero(solid.triangles == vertex)
        smooth = units[around] @ units[around].T > math.cos(math.radians(CREASE_DEG))
        normals[around, corner] = smooth @ areas[around]
    return normals / np.linalg.norm(normals, axis=2, keepdims=True)


def obj_text(solid: Solid, digits: int = 9) -> str:
    """Returns the text of an OBJ file with normals.

    Args:
        solid: Solid without degenerate triangles.
        digits: Digits of a coordinate after the decimal point.
    """
    rounded = np.round(corner_normals(solid).reshape(-1, 3), 4) + 0.0  # no -0
    normals, indices = np.unique(rounded, axis=0, return_inverse=True)
    lines = ["v " + " ".join(decimal(x, digits) for x in vertex) for vertex in solid.vertices]
    lines += ["vn " + " ".join(decimal(x, 4) for x in normal) for normal in normals]
    for corners in zip(solid.triangles + 1, indices.reshape(-1, 3) + 1, strict=True):
        lines.append("f " + " ".join(f"{v}//{n}" for v, n in zip(*corners, strict=True)))
    return "\n".join(lines) + "\n"
