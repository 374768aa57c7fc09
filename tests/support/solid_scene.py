"""The scene as triangles in the world, read from the model files without Drake's renderer."""

from collections.abc import Iterable
from typing import cast

import numpy as np
import trimesh
from pydrake.geometry import Box, Mesh, Role, Shape

from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.perception.camera_view import BACKGROUND, OBJECT, ROBOT, TOOL


def solids(env: ToolUseEnv) -> list[tuple[int, trimesh.Trimesh]]:
    """Returns all visible shapes in their present poses, each with its segment."""
    world, query = env.simulation.world, env.simulation.query()
    inspector = query.inspector()
    segments = {world.arm: ROBOT, world.tool: TOOL, world.object: OBJECT}
    found = []
    for geometry in inspector.GetAllGeometryIds(Role.kPerception):
        body = world.plant.GetBodyFromFrameId(inspector.GetFrameId(geometry))
        mesh = _triangles(inspector.GetShape(geometry))
        mesh.apply_transform(query.GetPoseInWorld(geometry).GetAsMatrix4())
        found.append((segments.get(body.model_instance(), BACKGROUND), mesh))
    return found


def solid(env: ToolUseEnv, segment: int) -> trimesh.Trimesh:
    """Returns all shapes of a segment as one mesh."""
    return _united(mesh for of, mesh in solids(env) if of == segment)


def cast_rays(
    env: ToolUseEnv, K: np.ndarray, X_WC: np.ndarray, pixels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Casts a ray through each pixel (n, 2); returns depths (infinite: nothing) and segments."""
    parts = solids(env)
    scene = _united(mesh for _, mesh in parts)
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


def _united(meshes: Iterable[trimesh.Trimesh]) -> trimesh.Trimesh:
    return cast(trimesh.Trimesh, trimesh.util.concatenate(list(meshes)))


def _triangles(shape: Shape) -> trimesh.Trimesh:
    if isinstance(shape, Box):
        return trimesh.creation.box(shape.size())
    assert isinstance(shape, Mesh), shape
    path = str(shape.source().path())
    mesh = cast(trimesh.Trimesh, trimesh.load(path, force="mesh", process=False))
    mesh.apply_scale(shape.scale3())
    return mesh
