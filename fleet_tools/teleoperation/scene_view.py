"""The scene in three dimensions, with the gizmo, served by viser."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from pydrake.geometry import GeometryId, Rgba, Role, SceneGraphInspector
from pydrake.math import RigidTransform

from fleet_tools.perception.camera_view import BACKGROUND, OBJECT, TOOL
from fleet_tools.perception.rendering import tinted
from fleet_tools.perception.visible_links import shape_triangles, visible_frames
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world import World
from fleet_tools.teleoperation.gizmo import pose_of
from fleet_tools.utils.page_gate import open_viser, stop_viser

EYE, TARGET = (-0.15, -0.85, 0.75), (0.42, 0.0, 0.2)
"""Position of the first camera, over the arm's right shoulder, and what it looks at, in W, m."""

GIZMO_SIZE_M = 0.16
_GREY = Rgba(0.7, 0.7, 0.72, 1.0)
_SMOOTH_RAD = 0.6
"""Largest angle between two faces that are shaded as one surface."""


@dataclass(frozen=True, eq=False)
class _Poses:
    """Poses of the visible links, and of the end effector as the last one.

    Attributes:
        p_W: (n, 3), positions, m.
        q_W: (n, 4), quaternions wxyz.
    """

    p_W: np.ndarray
    q_W: np.ndarray

    @classmethod
    def of(cls, X_W: list[RigidTransform]) -> "_Poses":
        return cls(
            np.array([X.translation() for X in X_W]),
            np.array([X.rotation().ToQuaternion().wxyz() for X in X_W]),
        )

    def toward(self, other: "_Poses", fraction: float) -> "_Poses":
        """Returns poses between these and others, whose quaternions are interpolated linearly."""
        sign = np.where((self.q_W * other.q_W).sum(axis=1, keepdims=True) < 0, -1.0, 1.0)
        q_W = (1 - fraction) * self.q_W + fraction * sign * other.q_W
        return _Poses(
            (1 - fraction) * self.p_W + fraction * other.p_W,
            q_W / np.linalg.norm(q_W, axis=1, keepdims=True),
        )


class SceneView:
    """A page with the present scene, on which the gizmo is dragged.

    Args:
        drag: Receives the pose X_WT to which the gizmo is dragged.

    Attributes:
        gate: The way to the page.

    Raises:
        MissingLibraryError: viser is absent.
    """

    def __init__(self, drag: Callable[[RigidTransform], None]) -> None:
        self.gate, self._server = open_viser(0, "show the scene in the browser")
        self._server.gui.configure_theme(show_logo=False, show_share_button=False)
        self._server.gui.main_panel.minimize()
        scene = self._server.scene
        self._server.initial_camera.position = EYE
        self._server.initial_camera.look_at = TARGET
        self._gizmo = scene.add_transform_controls(
            "/gizmo", scale=GIZMO_SIZE_M, depth_test=False, line_width=3.0
        )

        @self._gizmo.on_update
        async def _(event) -> None:  # in the server's thread, in order
            with contextlib.suppress(ValueError):  # a page may send anything
                drag(pose_of(event.target.position, event.target.wxyz))

        self._frames = []
        self._shown: tuple[float, bool] | None = None
        self._before = self._now = _Poses(np.zeros((0, 3)), np.zeros((0, 4)))

    def close(self) -> None:
        """Stops serving."""
        stop_viser(self._server)

    def show(self, simulation: Simulation, X_WE: RigidTransform, *, begins: bool) -> None:
        """Takes over the present state, to which `between` then leads.

        Args:
            simulation: The simulation.
            X_WE: Pose of the end effector, with which the gizmo goes.
            begins: Whether an episode begins, so that nothing moves towards it.
        """
        world = simulation.world
        if begins:
            self._enter(world, simulation.scene)
        query = simulation.query()
        X_W = [query.GetPoseInWorld(frame) for frame, _ in visible_frames(world)]
        now = _Poses.of([*X_W, X_WE])
        self._before, self._now = (now if begins else self._now), now
        self._shown = None

    def between(self, fraction: float, held: bool) -> None:
        """Shows the scene between the last two states.

        Args:
            fraction: 0 at the earlier state, 1 at the later one.
            held: Whether the gizmo stays where it was dragged; else it goes with the arm.
        """
        if self._shown == (fraction, held):
            return
        self._shown = fraction, held
        poses = self._before.toward(self._now, fraction)
        with self._server.atomic():
            for frame, p, q in zip(self._frames, poses.p_W, poses.q_W, strict=False):
                frame.position, frame.wxyz = p, q
            if not held:
                self._gizmo.position, self._gizmo.wxyz = poses.p_W[-1], poses.q_W[-1]

    def _enter(self, world: World, scene: Scene) -> None:
        """Adds what a new scene shows; tool and object have other colours in every scene."""
        for frame in self._frames:
            frame.remove()
        self._frames = []
        tints = {TOOL: scene.tool_tint, OBJECT: scene.object_tint, BACKGROUND: scene.table_tint}
        inspector = world.scene_graph.model_inspector()
        for k, (frame, segment) in enumerate(visible_frames(world)):
            self._frames.append(self._server.scene.add_frame(f"/links/{k}", show_axes=False))
            for j, shape in enumerate(inspector.GetGeometries(frame, Role.kPerception)):
                tint = tints.get(segment, (1.0, 1.0, 1.0))
                self._add_shape(f"/links/{k}/{j}", inspector, shape, tint)

    def _add_shape(
        self,
        name: str,
        inspector: SceneGraphInspector,
        shape: GeometryId,
        tint: tuple[float, float, float],
    ) -> None:
        import trimesh

        triangles = shape_triangles(inspector.GetShape(shape))
        if not len(triangles):
            return
        soup = np.arange(3 * len(triangles)).reshape(-1, 3)
        mesh = trimesh.Trimesh(triangles.reshape(-1, 3), soup)  # merges equal corners
        mesh = trimesh.graph.smooth_shade(mesh, angle=_SMOOTH_RAD)
        properties = inspector.GetPerceptionProperties(shape)
        color = tinted(properties.GetPropertyOrDefault("phong", "diffuse", _GREY), tint)
        X_BG = inspector.GetPoseInFrame(shape)
        self._server.scene.add_mesh_simple(
            name,
            mesh.vertices,
            mesh.faces,
            color=(color.r(), color.g(), color.b()),
            opacity=color.a() if color.a() < 1.0 else None,
            position=X_BG.translation(),
            wxyz=X_BG.rotation().ToQuaternion().wxyz(),
        )
