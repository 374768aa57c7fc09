"""Display of the teleoperation page: scene, gizmo, images, forces, success, progress."""

import base64
import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
from pydrake.math import RigidTransform

from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.predicate_sentences import sentences
from fleet_tools.sim.simulation import Simulation
from fleet_tools.studio.page_gate import open_viser, stop_viser
from fleet_tools.studio.teleoperation.camera_process import CameraProcess
from fleet_tools.studio.teleoperation.devices import Inputs
from fleet_tools.studio.teleoperation.page_server import PageServer
from fleet_tools.studio.viser_links import LinkPoses, ViserLinks, link_meshes, link_poses, pose_of

EYE, TARGET = (-0.15, -0.85, 0.75), (0.42, 0.0, 0.2)
"""Position of the first camera, over the arm's right shoulder, and its target, in W, m."""

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
        """Takes over the present state, to which `between` then leads unless an episode begins.

        The gizmo goes with X_WE, the pose of the end effector.
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
        """Shows the scene between the last two states, at 0 and 1; a held gizmo stays in place."""
        if self._shown == (fraction, held):
            return
        self._shown = fraction, held
        poses = self._before.toward(self._now, fraction)
        with self._server.atomic():
            if self._links is not None:
                self._links.place(poses)
            if not held:
                self._gizmo.position, self._gizmo.wxyz = poses.p_W[-1], poses.q_W[-1]


class TeleoperationDisplay:
    """Shows an environment while a person acts in it; reads its public state alone.

    Args:
        env: The environment.
        spec: Its specification.
        port: Port of the page; 0 takes a free one.

    Attributes:
        inputs: The devices.
        url: Address of the page.

    Raises:
        ConfigError: The port is taken.
        MissingLibraryError: A library is absent.
    """

    def __init__(self, env: ToolUseEnv, spec: EnvSpec, port: int) -> None:
        self._env, self.inputs = env, Inputs()
        with contextlib.ExitStack() as stack:
            self._pages = stack.enter_context(PageServer(self.inputs, port))
            self._scene_view = stack.enter_context(contextlib.closing(SceneView(self.inputs.drag)))
            self._cameras = stack.enter_context(contextlib.closing(CameraProcess(spec)))
            self._opened = stack.pop_all()
        self.url = self._pages.url
        demands = [each.replace("`", "") for each in sentences(env.task)]
        self._session: dict[str, Any] = {"description": env.task.description, "demands": demands}
        self._state: dict[str, Any] = {}
        self._offered: int | None = None
        gate = self._scene_view.gate
        self._pages.show("scene", {"port": gate.port, "path": gate.path})

    def close(self) -> None:
        """Closes page, scene and cameras."""
        self._opened.close()

    def session(self, **facts: Any) -> None:
        """Replaces facts about the session, plain JSON data by name."""
        self._session |= facts
        self._publish()

    def step(self) -> None:
        """Takes over the state after a reset or a step."""
        env = self._env
        simulation = env.simulation
        X_WE = env.world_state().X_WE
        self._scene_view.show(simulation, X_WE, begins=simulation.steps == 0)
        self._state = state_facts(env)
        self._offered = None
        self._publish()

    def between(self, fraction: float) -> None:
        """Shows the scene on the way to the present state, and images as they come."""
        self._scene_view.between(fraction, held=self.inputs.given().target is not None)
        if self._offered is None and self._cameras.offer(self._env.get_state()):
            self._offered = self._env.simulation.steps
        images = self._cameras.images()
        if images is not None:
            encoded = {name: base64.b64encode(jpeg).decode() for name, jpeg in images.items()}
            self._pages.show("images", {"images": encoded})
        if self._cameras.error is not None:
            self._pages.show("images", {"error": self._cameras.error})

    def _publish(self) -> None:
        self._pages.show("status", self._session | self._state)


def state_facts(env: ToolUseEnv) -> dict[str, Any]:
    """Returns the page's facts about the present state, as plain JSON data; numbers are rounded."""
    state, scene = env.world_state(), env.scene
    forces = state.forces()
    return {
        "tool": scene.tool,
        "object": scene.object,
        "step": env.simulation.steps,
        "steps": env.task.max_episode_steps,
        "rate_hz": env.metadata["render_fps"],
        "tool_force_N": _rounded(float(np.linalg.norm(forces["tool_force_N"]))),
        "tool_moment_Nm": _rounded(float(np.linalg.norm(forces["tool_moment_Nm"]))),
        "hand_force_N": _rounded(float(np.linalg.norm(state.F_E[3:]))),
        "motion_scale": _rounded(state.motion_scale),
        "verdicts": [
            {"name": name, "holds": verdict.holds, "progress": _rounded(verdict.progress)}
            for name, verdict in env.verdicts().items()
        ],
    }


def _rounded(number: float) -> float | None:
    return round(number, 3) if np.isfinite(number) else None
