"""The visible links of a scene, in a page of viser."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydrake.common.eigen_geometry import Quaternion
from pydrake.geometry import GeometryId, Rgba, Role, SceneGraphInspector
from pydrake.math import RigidTransform, RotationMatrix

from fleet_tools.perception.camera_view import BACKGROUND, OBJECT, OTHER_OBJECT, TOOL
from fleet_tools.perception.rendering import tinted
from fleet_tools.perception.visible_links import shape_triangles, visible_frames
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world import World

if TYPE_CHECKING:
    import viser

_GREY = Rgba(0.7, 0.7, 0.72, 1.0)
_SMOOTH_RAD = 0.6
"""Largest angle between two faces that are shaded as one surface."""


@dataclass(frozen=True, eq=False)
class LinkMesh:
    """A visible shape of a link.

    Attributes:
        vertices: (n, 3), in the frame of the shape, m.
        faces: (m, 3), indices of vertices.
        color: Red, green, blue and opacity, in [0, 1].
        position: (3,), position of the shape in the frame of the link, m.
        wxyz: (4,), its orientation, a quaternion.
    """

    vertices: np.ndarray
    faces: np.ndarray
    color: tuple[float, float, float, float]
    position: np.ndarray
    wxyz: np.ndarray


@dataclass(frozen=True, eq=False)
class LinkPoses:
    """Poses in the world W at one time.

    Attributes:
        p_W: (n, 3), positions, m.
        q_W: (n, 4), quaternions wxyz.
    """

    p_W: np.ndarray
    q_W: np.ndarray

    @classmethod
    def of(cls, X_W: Iterable[RigidTransform]) -> "LinkPoses":
        """Returns poses as arrays."""
        poses = list(X_W)
        return cls(
            np.array([X.translation() for X in poses]).reshape(-1, 3),
            np.array([X.rotation().ToQuaternion().wxyz() for X in poses]).reshape(-1, 4),
        )

    def toward(self, other: "LinkPoses", fraction: float) -> "LinkPoses":
        """Returns poses between these and others, whose quaternions are interpolated linearly."""
        sign = np.where((self.q_W * other.q_W).sum(axis=1, keepdims=True) < 0, -1.0, 1.0)
        q_W = (1 - fraction) * self.q_W + fraction * sign * other.q_W
        return LinkPoses(
            (1 - fraction) * self.p_W + fraction * other.p_W,
            q_W / np.linalg.norm(q_W, axis=1, keepdims=True),
        )


def link_poses(simulation: Simulation, *more: RigidTransform) -> LinkPoses:
    """Returns the present poses of the visible links, as `link_meshes` has them, and of others."""
    query = simulation.query()
    frames = visible_frames(simulation.world)
    return LinkPoses.of([*(query.GetPoseInWorld(frame) for frame, _ in frames), *more])


def link_meshes(world: World, scene: Scene) -> list[list[LinkMesh]]:
    """Returns the shapes of each visible link, in the colours of a scene."""
    tints = {TOOL: scene.tool_tint, OBJECT: scene.object_tint, BACKGROUND: scene.table_tint}
    tints[OTHER_OBJECT] = scene.object_tint
    inspector = world.scene_graph.model_inspector()
    links = []
    for frame, segment in visible_frames(world):
        shapes = inspector.GetGeometries(frame, Role.kPerception)
        tint = tints.get(segment, (1.0, 1.0, 1.0))
        meshes = [_mesh(inspector, shape, tint) for shape in shapes]
        links.append([each for each in meshes if len(each.faces)])
    return links


def _mesh(
    inspector: SceneGraphInspector, shape: GeometryId, tint: tuple[float, float, float]
) -> LinkMesh:
    import trimesh

    triangles = shape_triangles(inspector.GetShape(shape))
    soup = np.arange(3 * len(triangles)).reshape(-1, 3)
    mesh = trimesh.Trimesh(triangles.reshape(-1, 3), soup)  # merges equal corners
    if len(triangles):
        mesh = trimesh.graph.smooth_shade(mesh, angle=_SMOOTH_RAD)
    properties = inspector.GetPerceptionProperties(shape)
    color = tinted(properties.GetPropertyOrDefault("phong", "diffuse", _GREY), tint)
    X_BG = inspector.GetPoseInFrame(shape)
    return LinkMesh(
        np.asarray(mesh.vertices),
        np.asarray(mesh.faces),
        (color.r(), color.g(), color.b(), color.a()),
        X_BG.translation(),
        X_BG.rotation().ToQuaternion().wxyz(),
    )


def pose_of(position: np.ndarray, wxyz: np.ndarray) -> RigidTransform:
    """Returns the pose of a gizmo from a page's message, m and a quaternion of any length but 0.

    Raises:
        ValueError: They are not finite, or the quaternion is 0.
    """
    length = float(np.linalg.norm(wxyz))
    if not np.isfinite([*position, length]).all() or length == 0:
        raise ValueError(f"no pose: position {position}, quaternion {wxyz}")
    return RigidTransform(RotationMatrix(Quaternion(np.asarray(wxyz, float) / length)), position)


class ViserLinks:
    """Links in a page.

    Args:
        server: The page's server.
        root: Path under which they are.
        links: The shapes of each link, see `link_meshes`.
    """

    def __init__(
        self, server: "viser.ViserServer", root: str, links: Sequence[Sequence[LinkMesh]]
    ) -> None:
        self._server = server
        self._root = server.scene.add_frame(root, show_axes=False)
        self._frames = []
        for k, meshes in enumerate(links):
            self._frames.append(server.scene.add_frame(f"{root}/{k}", show_axes=False))
            for j, mesh in enumerate(meshes):
                *color, opacity = mesh.color
                server.scene.add_mesh_simple(
                    f"{root}/{k}/{j}",
                    mesh.vertices,
                    mesh.faces,
                    color=(color[0], color[1], color[2]),
                    opacity=opacity if opacity < 1.0 else None,
                    position=mesh.position,
                    wxyz=mesh.wxyz,
                )

    def place(self, poses: LinkPoses) -> None:
        """Moves the links, in their order; further poses are not read."""
        with self._server.atomic():
            for frame, p, q in zip(self._frames, poses.p_W, poses.q_W, strict=False):
                frame.position, frame.wxyz = p, q

    def remove(self) -> None:
        """Removes the links from the page."""
        self._root.remove()
