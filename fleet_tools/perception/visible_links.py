"""The visible links of a world, and their surfaces as triangles."""

from collections.abc import Hashable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydrake.geometry import (
    Box,
    Capsule,
    Convex,
    Cylinder,
    Ellipsoid,
    FrameId,
    Mesh,
    Role,
    SceneGraph,
    Shape,
    Sphere,
)

from fleet_tools.config.randomization import PLACE
from fleet_tools.errors import ConfigError
from fleet_tools.perception.camera_view import (
    BACKGROUND,
    MARK,
    OBJECT,
    OTHER_OBJECT,
    ROBOT,
    TOOL,
)
from fleet_tools.sim.mesh_reading import read_parts, to_model_frame
from fleet_tools.sim.world import World

if TYPE_CHECKING:
    import trimesh


def visible_frames(world: World) -> Iterator[tuple[FrameId, int]]:
    """Yields the frame of each visible link, and its segment, `OTHER_OBJECT` or `MARK`."""
    inspector = world.scene_graph.model_inspector()
    segments = dict.fromkeys(world.objects, OTHER_OBJECT)
    segments |= {world.arm: ROBOT, world.tool: TOOL, world.object: OBJECT}
    if world.plant.HasModelInstanceNamed(PLACE):
        segments[world.plant.GetModelInstanceByName(PLACE)] = MARK
    for frame in inspector.GetAllFrameIds():
        if inspector.NumGeometriesForFrameWithRole(frame, Role.kPerception):
            body = world.plant.GetBodyFromFrameId(frame)
            yield frame, segments.get(body.model_instance(), BACKGROUND)


def link_triangles(scene_graph: SceneGraph, frame: FrameId) -> np.ndarray:
    """Returns the surface of a visible link.

    Args:
        scene_graph: Drake's system that has the link.
        frame: Frame of the link, see `visible_frames`.

    Returns:
        (n, 3, 3) float32, corners of triangles in the link's frame B, m.

    Raises:
        ConfigError: A mesh of the link cannot be read.
    """
    inspector = scene_graph.model_inspector()
    found = [np.zeros((0, 3, 3), np.float32)]
    for geometry in inspector.GetGeometries(frame, Role.kPerception):
        corners_G = shape_triangles(inspector.GetShape(geometry))
        X_BG = inspector.GetPoseInFrame(geometry)
        corners_B = X_BG.multiply(corners_G.reshape(-1, 3).T).T
        found.append(corners_B.reshape(-1, 3, 3).astype(np.float32))
    return np.concatenate(found)


def shape_triangles(shape: Shape) -> np.ndarray:
    """Returns the surface of a shape, (n, 3, 3), in its own frame, m; not to be written to.

    Raises:
        ConfigError: It is a mesh that cannot be read, or a shape without triangles.
    """
    return _triangles(_description(shape))


def _description(shape: Shape) -> tuple[Hashable, ...]:
    """Returns the kind of a shape and its dimensions, as a key."""
    match shape:
        case Mesh() | Convex():
            source = shape.source()
            if source.is_in_memory():
                content = source.in_memory().mesh_file.contents()
                return type(shape).__name__, _CONVERTED, content, *shape.scale3()
            path = Path(source.path())
            return type(shape).__name__, path, path.stat().st_mtime_ns, *shape.scale3()
        case Box():
            return "Box", *shape.size()
        case Cylinder() | Capsule():
            return type(shape).__name__, shape.radius(), shape.length()
        case Sphere():
            return "Sphere", shape.radius()
        case Ellipsoid():
            return "Ellipsoid", shape.a(), shape.b(), shape.c()
    raise ConfigError(
        f"Ray casting supports no shape of type {type(shape).__name__}. Replace it by a mesh."
    )


@lru_cache(maxsize=256)  # links of the arm, and models, come again with every other world
def _triangles(description: tuple) -> np.ndarray:
    """Returns the surface of a shape, (n, 3, 3), in its own frame, m."""
    import trimesh  # takes 0.3 s

    kind, *size = description
    match kind:
        case "Mesh" | "Convex":
            path, content, *scale = size
            mesh = _read(path, content if path is _CONVERTED else None)
            mesh.apply_scale(scale)
            mesh = mesh.convex_hull if kind == "Convex" else mesh
        case "Box":
            mesh = trimesh.creation.box(size)
        case "Cylinder":
            mesh = trimesh.creation.cylinder(*size, sections=64)
        case "Capsule":
            mesh = trimesh.creation.capsule(size[1], size[0], count=[32, 32])
            mesh.apply_translation(-mesh.bounds.mean(axis=0))
        case "Sphere":
            mesh = trimesh.creation.icosphere(4, *size)
        case _:
            mesh = trimesh.creation.icosphere(4)
            mesh.apply_scale(size)
    return np.array(mesh.triangles)


_CONVERTED = Path("visual.obj")
"""Name of meshes in memory, which all are Wavefront files (`fleet_tools.sim.visual_meshes`)."""


def _read(path: Path, content: bytes | None) -> "trimesh.Trimesh":
    import trimesh

    mesh = trimesh.util.concatenate(read_parts(path, content))
    assert isinstance(mesh, trimesh.Trimesh)  # as its parts are
    if mesh.triangles.shape[1:] != (3, 3) or not np.isfinite(mesh.triangles).all():
        raise ConfigError(
            f"{path} cannot be drawn: it has no triangles with finite vertices. Export it again."
        )
    if path is not _CONVERTED:
        mesh.apply_transform(to_model_frame(path))
    return mesh
