"""Repairs hydroelastic meshes of foreign collision shapes, so that contact cannot fail.

Drake moves the planes of a compliant convex mesh outward by its hydroelastic margin. Where more
than three of them meet at a vertex, that splits the vertex into slivers. The mesh is refused ("a
mesh field element was degenerate"), or has triangles so small that some later contact with them
fails ("Cannot instantiate plane from normal"). Such a shape does without a margin here, and without
the vertices whose triangles are too small even then.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from pydrake.geometry import (
    AddCompliantHydroelasticProperties,
    Convex,
    GeometryId,
    GeometryInstance,
    Mesh,
    ProximityProperties,
    RoleAssign,
    SceneGraph,
    SceneGraphConfig,
    Shape,
    SourceId,
    TriangleSurfaceMesh,
    VolumeMesh,
)
from pydrake.math import RigidTransform

LEAST_CROSS_PRODUCT = 2e-10
"""Least |(b - a) x (c - a)| of the triangles abc of a hydroelastic mesh, m^2: twice the length of a
normal vector that Drake takes for zero when it computes a contact surface."""


@dataclass(frozen=True)
class MendedShape:
    """Repairs of a collision shape.

    Attributes:
        name: Its name.
        elements: Number of elements of its hydroelastic mesh; 0 if it has none.
        without_margin: Whether its hydroelastic margin was set to 0.
        moved: Largest distance of a vertex that was left out from the planes of the surface, m.
        error: Why contact with it can fail all the same; None if it cannot.
    """

    name: str
    elements: int
    without_margin: bool = False
    moved: float = 0.0
    error: str | None = None


def mend_shape(scene_graph: SceneGraph, source: SourceId, shape: GeometryId) -> MendedShape:
    """Gives a collision shape a hydroelastic mesh with which contact cannot fail.

    Args:
        scene_graph: The scene graph, whose model is changed; contexts of it are not.
        source: Source of the shape.
        shape: A shape with a hydroelastic type.
    """
    inspector = scene_graph.model_inspector()
    name = shape_name(scene_graph, shape)
    properties = ProximityProperties(inspector.GetProximityProperties(shape))

    def mesh_with(margin: float) -> VolumeMesh | TriangleSurfaceMesh | None:
        properties.UpdateProperty("hydroelastic", "margin", margin)
        scene_graph.AssignRole(source, shape, properties, RoleAssign.kReplace)
        return inspector.maybe_get_hydroelastic_mesh(shape)

    def hull_mesh(points: np.ndarray) -> VolumeMesh:
        scene_graph.ChangeShape(source, shape, Convex(points.T, name))
        mesh = inspector.maybe_get_hydroelastic_mesh(shape)
        assert isinstance(mesh, VolumeMesh)
        return mesh

    # Contexts add the default margin to shapes without one; given here, its mesh is made now.
    margin = scene_graph.get_config().default_proximity_properties.margin or 0.0
    margin = properties.GetPropertyOrDefault("hydroelastic", "margin", margin)
    try:
        mesh = mesh_with(margin)
        if not isinstance(mesh, VolumeMesh):  # small triangles of a rigid surface do no harm
            return MendedShape(name, 0 if mesh is None else mesh.num_elements())
        if least_cross_product(mesh) >= LEAST_CROSS_PRODUCT:
            return MendedShape(name, mesh.num_elements())
    except RuntimeError:
        pass
    try:
        mesh = mesh_with(0.0)
        assert isinstance(mesh, VolumeMesh)
        moved = 0.0
        if least_cross_product(mesh) < LEAST_CROSS_PRODUCT:
            if not _is_hull(inspector.GetShape(shape)):
                return MendedShape(name, mesh.num_elements(), error="its triangles are too small")
            mesh, moved = without_small_triangles(mesh, hull_mesh)
    except RuntimeError as error:
        return MendedShape(name, 0, error=str(error))
    return MendedShape(name, mesh.num_elements(), without_margin=True, moved=moved)


def shape_name(scene_graph: SceneGraph, shape: GeometryId) -> str:
    """Returns the name of a shape in its model file."""
    return scene_graph.model_inspector().GetName(shape).rsplit("::", 1)[-1]


def mend_alone(shape: Shape, margin: float) -> MendedShape:
    """Mends a compliant shape by itself, to list its repairs.

    Args:
        shape: The shape.
        margin: Hydroelastic margin, m.
    """
    config, properties = SceneGraphConfig(), ProximityProperties()
    config.default_proximity_properties.margin = margin
    AddCompliantHydroelasticProperties(
        resolution_hint=1.0, hydroelastic_modulus=1e8, properties=properties
    )
    scene_graph = SceneGraph(config)
    source = scene_graph.RegisterSource("alone")
    try:
        instance = GeometryInstance(RigidTransform(), shape, "shape")
        registered = scene_graph.RegisterAnchoredGeometry(source, instance)
        scene_graph.AssignRole(source, registered, properties)
    except RuntimeError as error:
        return MendedShape("shape", 0, error=str(error))
    return mend_shape(scene_graph, source, registered)


def least_cross_product(mesh: VolumeMesh) -> float:
    """Returns the least |(b - a) x (c - a)| of the faces abc of the elements of a mesh, m^2."""
    return float(_cross_products(_vertices(mesh)[_faces(mesh)]).min())


def without_small_triangles(
    mesh: VolumeMesh, hull_mesh: Callable[[np.ndarray], VolumeMesh]
) -> tuple[VolumeMesh, float]:
    """Leaves out vertices of a convex mesh until no triangle is too small.

    Of each small triangle the vertex opposite its longest side is left out: one end of a short
    side, or the middle of a flat corner.

    Args:
        mesh: Hydroelastic mesh of a convex shape.
        hull_mesh: Makes the mesh of the convex hull of points, (n, 3).

    Returns:
        The mesh, and the largest distance of a vertex that was left out from the planes of its
        surface, m.

    Raises:
        RuntimeError: Too few vertices are left for a mesh.
    """
    original = _vertices(mesh)[np.unique(_surface(mesh))]
    while True:
        vertices, faces, surface = _vertices(mesh), _faces(mesh), _surface(mesh)
        sizes = _cross_products(vertices[faces])
        if sizes.min() >= LEAST_CROSS_PRODUCT:
            return mesh, _distance_outside(original, vertices[surface])
        kept = np.isin(np.arange(len(vertices)), surface)
        inside = ~kept  # of a star mesh, the point in the middle
        touched = np.zeros(len(vertices), bool)
        for face in faces[np.argsort(sizes)][: np.count_nonzero(sizes < LEAST_CROSS_PRODUCT)]:
            if touched[face].any():
                continue  # without its neighbour it may be large enough
            touched[face] = True
            a, b, c = vertices[face]
            opposite = np.linalg.norm([b - c, c - a, a - b], axis=1)
            opposite[inside[face]] = 0.0
            kept[face[np.argmax(opposite)]] = False
        if np.count_nonzero(kept) < 4:
            raise RuntimeError("it has no volume after small triangles are removed")
        mesh = hull_mesh(vertices[kept])


def _vertices(mesh: VolumeMesh) -> np.ndarray:
    return np.array(mesh.vertices())


def _faces(mesh: VolumeMesh) -> np.ndarray:
    """Returns vertex indices of the faces of all elements, (n, 3)."""
    elements = np.array([[t.vertex(k) for k in range(4)] for t in mesh.tetrahedra()])
    return np.concatenate([np.delete(elements, k, axis=1) for k in range(4)])


def _surface(mesh: VolumeMesh) -> np.ndarray:
    """Returns vertex indices of the faces that belong to one element only, (n, 3)."""
    faces, counts = np.unique(np.sort(_faces(mesh), axis=1), axis=0, return_counts=True)
    return faces[counts == 1]


def _cross_products(corners: np.ndarray) -> np.ndarray:
    """Returns |(b - a) x (c - a)| of triangles abc, (n, 3 corners, 3)."""
    a, b, c = np.moveaxis(corners, 1, 0)
    return np.linalg.norm(np.cross(b - a, c - a), axis=1)


def _distance_outside(points: np.ndarray, corners: np.ndarray) -> float:
    """Returns how far points, (n, 3), lie beyond the planes of a convex surface, at most.

    Args:
        points: Positions, (n, 3).
        corners: Triangles of the surface, in either orientation, (m, 3 corners, 3).
    """
    a, b, c = np.moveaxis(corners, 1, 0)
    normals = np.cross(b - a, c - a)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    normals *= np.sign(((a - corners.mean(axis=(0, 1))) * normals).sum(axis=1, keepdims=True))
    return float(max(0.0, (points @ normals.T - (a * normals).sum(axis=1)).max()))


def _is_hull(shape: Shape) -> bool:
    """Whether the compliant mesh of a shape is its convex hull's."""
    return isinstance(shape, Convex) or (isinstance(shape, Mesh) and shape.extension() != ".vtk")
