"""The scene in three dimensions, with the gizmo, served by viser."""

import contextlib
from collections.abc import Callable

import numpy as np
from pydrake.common.eigen_geometry import Quaternion
from pydrake.math import RigidTransform, RotationMatrix

from fleet_tools.sim.simulation import Simulation
from fleet_tools.studio.viser_links import LinkPoses, ViserLinks, link_meshes, link_poses
from fleet_tools.utils.page_gate import open_viser, stop_viser

EYE, TARGET = (-0.15, -0.85, 0.75), (0.42, 0.0, 0.2)
"""Position of the first camera, over the arm's right shoulder, and what it looks at, in W, m."""

GIZMO_SIZE_M = 0.16


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

        self._links: ViserLinks | None = None
        self._shown: tuple[float, bool] | None = None
        self._before = self._now = LinkPoses.of([RigidTransform()])

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
        if begins:  # tool and object have other colours in every scene
            if self._links is not None:
                self._links.remove()
            meshes = link_meshes(simulation.world, simulation.scene)
            self._links = ViserLinks(self._server, "/links", meshes)
        now = link_poses(simulation, X_WE)
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
            if self._links is not None:
                self._links.place(poses)
            if not held:
                self._gizmo.position, self._gizmo.wxyz = poses.p_W[-1], poses.q_W[-1]


def pose_of(position: np.ndarray, wxyz: np.ndarray) -> RigidTransform:
    """Returns a pose from what a page sends of the gizmo.

    Args:
        position: (3,), m.
        wxyz: (4,), quaternion, of any length but 0.

    Raises:
        ValueError: They are not finite, or the quaternion is 0.
    """
    length = float(np.linalg.norm(wxyz))
    if not np.isfinite([*position, length]).all() or length == 0:
        raise ValueError(f"no pose: position {position}, quaternion {wxyz}")
    return RigidTransform(RotationMatrix(Quaternion(np.asarray(wxyz, float) / length)), position)
