"""What the page shows: the scene, images, forces, success, and how the session goes."""

import base64
from typing import Any

import numpy as np

from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.success import sentences
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.studio.teleoperation.camera_process import CameraProcess
from fleet_tools.studio.teleoperation.inputs import Inputs
from fleet_tools.studio.teleoperation.page_server import PageServer
from fleet_tools.studio.teleoperation.scene_view import SceneView


class TeleoperationDisplay:
    """Shows an environment while a person acts in it; reads its public state alone.

    Args:
        env: The environment.
        spec: Its specification.
        inputs: The devices.
        pages: The page's server.
        scene_view: The scene in three dimensions.
    """

    def __init__(
        self,
        env: ToolUseEnv,
        spec: EnvSpec,
        inputs: Inputs,
        pages: PageServer,
        scene_view: SceneView,
    ) -> None:
        self._env, self._inputs, self._pages, self._scene_view = env, inputs, pages, scene_view
        self._cameras = CameraProcess(spec)
        demands = [each.replace("`", "") for each in sentences(env.task)]
        self._session: dict[str, Any] = {"description": env.task.description, "demands": demands}
        self._state: dict[str, Any] = {}
        self._offered: int | None = None
        pages.show("scene", {"port": scene_view.gate.port, "path": scene_view.gate.path})

    def close(self) -> None:
        """Ends the process that renders."""
        self._cameras.close()

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
        self._scene_view.between(fraction, held=self._inputs.given().target is not None)
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
    """Returns what the page says of the present state, as plain JSON data; numbers are rounded."""
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
