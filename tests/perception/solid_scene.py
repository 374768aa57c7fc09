"""The scene as triangles in the world, read from the model files without Drake's renderer."""

import numpy as np
import trimesh
from pydrake.geometry import Box, Mesh, Role

from fleet_tools.perception.segmentation import BACKGROUND, OBJECT, ROBOT, TOOL


def solids(env) -> list[tuple[int, trimesh.Trimesh]]:
    """Returns what can be seen, each with its segment, where it is now."""
    world, query = env._simulation.world, env._simulation.query()
    inspector = query.inspector()
    segments = {world.arm: ROBOT, world.tool: TOOL, world.object: OBJECT}
    found = []
    for geometry in inspector.GetAllGeometryIds(Role.kPerception):
        body = world.plant.GetBodyFromFrameId(inspector.GetFrameId(geometry))
        mesh = _triangles(inspector.GetShape(geometry))
        mesh.apply_transform(query.GetPoseInWorld(geometry).GetAsMatrix4())
        found.append((segments.get(body.model_instance(), BACKGROUND), mesh))
    return found


def solid(env, segment: int) -> trimesh.Trimesh:
    """Returns all that belongs to a segment as one mesh."""
    return trimesh.util.concatenate([mesh for of, mesh in solids(env) if of == segment])


def cast(env, K: np.ndarray, X_WC: np.ndarray, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Casts a ray through each pixel (n, 2); returns depths (infinite: nothing) and segments."""
    parts = solids(env)
    scene = trimesh.util.concatenate([mesh for _, mesh in parts])
    segments = np.repeat([of for of, _ in parts], [len(mesh.faces) for _, mesh in parts])
    rays = np.column_stack([pixels, np.ones(len(pixels))]) @ np.linalg.inv(K).T
    origins = np.tile(X_WC[:3, 3], (len(rays), 1))
    hits, ray, face = scene.ray.intersects_location(
        origins, rays @ X_WC[:3, :3].T, multiple_hits=False
    )
    depth, segment = np.full(len(rays), np.inf), np.full(len(rays), BACKGROUND)
    depth[ray] = (hits - X_WC[:3, 3]) @ X_WC[:3, 2]
    segment[ray] = segments[face]
    return depth, segment


def _triangles(shape) -> trimesh.Trimesh:
    if isinstance(shape, Box):
        return trimesh.creation.box(shape.size())
    assert isinstance(shape, Mesh), shape
    mesh = trimesh.load(shape.source().path(), force="mesh", process=False)
    mesh.apply_scale(shape.scale3())
    return mesh
