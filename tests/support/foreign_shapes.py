"""Convex shapes as modelling programs and scanners make them: rounded, subdivided, noisy, cut."""

import numpy as np
import trimesh
from numpy.typing import ArrayLike
from trimesh.transformations import rotation_matrix, translation_matrix


def moved(mesh: trimesh.Trimesh, *translation: float, about: str = "z", deg: float = 0.0):
    """Returns a mesh turned about an axis through the origin, then translated, m."""
    axis = np.eye(3)["xyz".index(about)]
    turned = mesh.copy()
    turned.apply_transform(rotation_matrix(np.radians(deg), axis))
    turned.apply_transform(translation_matrix(translation))
    return turned


def rounded_box(extents: ArrayLike, radius: float, subdivisions: int = 2) -> trimesh.Trimesh:
    """Returns the Minkowski sum of a box and a ball, which together have the extents."""
    ball = trimesh.creation.icosphere(subdivisions, radius)
    half = np.asarray(extents, float) / 2 - radius
    corners = np.array(np.meshgrid(*([-1, 1],) * 3)).reshape(3, -1).T * half
    points = (corners[:, None] + ball.vertices[None]).reshape(-1, 3)
    return trimesh.Trimesh(points).convex_hull


def noisy(mesh: trimesh.Trimesh, times: int, noise: float, seed: int = 0) -> trimesh.Trimesh:
    """Returns the hull of a subdivided mesh whose vertices are displaced at random, m."""
    fine = mesh.copy()
    for _ in range(times):
        fine = fine.subdivide()
    rng = np.random.default_rng(seed)
    return trimesh.Trimesh(fine.vertices + noise * rng.normal(size=fine.vertices.shape)).convex_hull


def dusty(mesh: trimesh.Trimesh, noise: float, seed: int = 0) -> trimesh.Trimesh:
    """Returns the hull of three displaced copies of each vertex: a sliver along every edge, m."""
    rng = np.random.default_rng(seed)
    return hull(*(mesh.vertices + noise * rng.normal(size=mesh.vertices.shape) for _ in range(3)))


def common(*meshes: trimesh.Trimesh) -> trimesh.Trimesh:
    """Returns the intersection."""
    return trimesh.boolean.intersection(list(meshes), engine="manifold")


def hull(*points: ArrayLike) -> trimesh.Trimesh:
    """Returns the convex hull of sets of points."""
    return trimesh.Trimesh(np.concatenate([np.asarray(p, float) for p in points])).convex_hull


box, cylinder, ball = (trimesh.creation.box, trimesh.creation.cylinder, trimesh.creation.icosphere)


def hammer() -> trimesh.Trimesh:
    """Returns a hammer in millimetres, of two overlapping parts, as from a modelling program."""
    head, handle = moved(box((30, 30, 70)), 165, 0, 17), moved(box((240, 24, 26)), 60, 0, 0)
    mesh = trimesh.util.concatenate([head, handle])
    assert isinstance(mesh, trimesh.Trimesh)
    return mesh


def rounded_hull(mesh: trimesh.Trimesh, radius: float) -> trimesh.Trimesh:
    """Returns a rounded box with a mesh's bounding box."""
    return moved(rounded_box(mesh.extents, radius), *mesh.bounding_box.centroid)


def obj_text(mesh: trimesh.Trimesh) -> str:
    """Returns an OBJ file's text, with all digits of the vertices."""
    lines = [f"v {x:.17g} {y:.17g} {z:.17g}" for x, y, z in mesh.vertices]
    lines += [f"vn {x:.6f} {y:.6f} {z:.6f}" for x, y, z in mesh.face_normals]
    for k, triangle in enumerate(mesh.faces + 1):
        lines.append("f " + " ".join(f"{vertex}//{k + 1}" for vertex in triangle))
    return "\n".join(lines) + "\n"
