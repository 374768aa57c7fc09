"""Photographs of simulated moments: colour from a Blender server, depth and labels from VTK."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydrake.geometry import (
    ClippingRange,
    ColorRenderCamera,
    DepthRange,
    DepthRenderCamera,
    MakeRenderEngineGltfClient,
    QueryObject,
    RenderCameraCore,
    RenderEngineGltfClientParams,
)
from pydrake.math import RigidTransform
from pydrake.multibody.tree import BodyIndex
from pydrake.systems.sensors import CameraInfo

from fleet_tools.catalog import find_model
from fleet_tools.env import EnvState
from fleet_tools.errors import RenderServerError, UnknownNameError
from fleet_tools.robot.panda import Visuals
from fleet_tools.scene import Scene
from fleet_tools.simulation import Simulation
from fleet_tools.tasks import TaskConfig
from fleet_tools.viewing import EYE, FIELD_OF_VIEW_DEG, RENDERER, TARGET, Viewer, look_at
from fleet_tools.world import World, build_world

BLENDER = "blender"
"""The renderer's name in Drake."""

START_SERVER = "python -m fleet_tools.blender --python BPY_ENV/bin/python"

NEAR_M, FAR_M = 0.01, 10.0


@dataclass(frozen=True)
class Camera:
    """A camera with square pixels.

    Attributes:
        frame: "world" or "end_effector", in which the scene gives its pose; None for the third
            view, which is the same in every scene.
        field_of_view_deg: Vertical.
    """

    frame: str | None
    field_of_view_deg: float


CAMERAS = {
    "overhead": Camera("world", 45.0),
    "wrist": Camera("end_effector", 60.0),
    "third": Camera(None, FIELD_OF_VIEW_DEG),
}


@dataclass(frozen=True, eq=False)
class Photograph:
    """What one camera sees of one moment.

    Attributes:
        color: (height, width, 3) uint8, from Blender.
        depth: (height, width) float32, along the camera's z axis in m: 0 if nearer than `NEAR_M`,
            infinity if farther than `FAR_M`.
        labels: (height, width) int16, keys of `names`; others are background.
        names: Of bodies, "model/body" by label.
        K: (3, 3), intrinsics in pixels, counted from the centre of the first one.
        X_WC: Pose of the camera: x to the right of the picture, y down, z forward.
    """

    color: np.ndarray
    depth: np.ndarray
    labels: np.ndarray
    names: dict[int, str]
    K: np.ndarray
    X_WC: RigidTransform


class Photographer:
    """Takes photographs of an environment's states.

    Drake's client holds Python up until the picture has come. For several pictures at the same
    time, take as many photographers, each in a process of its own.

    Args:
        task: The environment's.
        server: URL of a render server, see `fleet_tools.blender`.
        size: (width, height) in pixels.
        robot_visuals: As the environment's.

    Raises:
        MissingLibraryError: OpenGL is missing, without which there is no VTK.
    """

    def __init__(
        self,
        task: TaskConfig,
        server: str,
        size: tuple[int, int] = (640, 480),
        robot_visuals: Visuals = "light",
    ) -> None:
        self._task, self._server, self._size = task, server.rstrip("/"), size
        self._robot_visuals = robot_visuals
        self._viewer = Viewer("image")
        self._simulation: Simulation | None = None

    def photograph(self, state: EnvState, camera: str) -> Photograph:
        """Takes a photograph.

        Args:
            state: As `env.get_state()` returns it.
            camera: See `CAMERAS`.

        Raises:
            UnknownNameError: There is no such camera.
            RenderServerError: The server is not there, or cannot render this.
        """
        if camera not in CAMERAS:
            raise UnknownNameError("camera", camera, CAMERAS)
        simulation = self.simulation(state)
        X_WC = _camera_pose(simulation, state.scene, camera)
        width, height = self._size
        intrinsics = CameraInfo(width, height, np.deg2rad(CAMERAS[camera].field_of_view_deg))
        query = simulation.query()
        try:
            color = render_color(query, BLENDER, intrinsics, X_WC)
        except RuntimeError as error:
            raise RenderServerError(f"{error}\nIs there a server? {START_SERVER}") from error
        return Photograph(
            color=color,
            depth=render_depth(query, RENDERER, intrinsics, X_WC),
            labels=render_labels(query, RENDERER, intrinsics, X_WC),
            names=_body_names(simulation.world),
            K=intrinsics.intrinsic_matrix(),
            X_WC=X_WC,
        )

    def simulation(self, state: EnvState) -> Simulation:
        """Returns a simulation in that state, with both renderers; the next call changes it."""
        pair = state.scene.tool, state.scene.object
        current = self._simulation
        if current is None or pair != (self._pair):
            self._simulation, self._pair = self._build(*pair), pair
        self._simulation.reset(state.scene)
        self._simulation.restore(state.snapshot)
        return self._simulation

    def _build(self, tool_name: str, object_name: str) -> Simulation:
        task = self._task
        tool = find_model("tool", task.tool_family, tool_name, task.assets)
        object = find_model("object", task.object_family, object_name, task.assets)
        world = build_world(task, tool, object, self._viewer, self._robot_visuals)
        client = RenderEngineGltfClientParams(base_url=self._server)
        # Before the simulation's context is made, which then has it, too.
        world.scene_graph.AddRenderer(BLENDER, MakeRenderEngineGltfClient(client))
        return Simulation(world, tool, object)


def require_server(server: str) -> Mapping[str, Any]:
    """Returns what a render server says of itself.

    Raises:
        RenderServerError: It is not there; the message has the line that starts one.
    """
    try:
        with urllib.request.urlopen(f"{server.rstrip('/')}/health", timeout=10) as answer:
            health = json.load(answer)
    except (OSError, ValueError) as error:
        raise RenderServerError(
            f"No Blender answers at {server}: {error}. Start one in another terminal, with the "
            f"Python of an environment that has bpy:\n  {START_SERVER}"
        ) from error
    if not isinstance(health, dict) or "blender" not in health:
        raise RenderServerError(f"What answers at {server} is no server of fleet_tools.blender.")
    return health


def render_color(
    query: QueryObject, renderer: str, intrinsics: CameraInfo, X_WC: RigidTransform
) -> np.ndarray:
    """Returns (height, width, 3) uint8."""
    camera = ColorRenderCamera(_core(renderer, intrinsics))
    image = query.RenderColorImage(camera, query.inspector().world_frame_id(), X_WC)
    return image.data[:, :, :3].copy()


def render_depth(
    query: QueryObject, renderer: str, intrinsics: CameraInfo, X_WC: RigidTransform
) -> np.ndarray:
    """Returns (height, width) float32, m."""
    camera = DepthRenderCamera(_core(renderer, intrinsics), DepthRange(NEAR_M, FAR_M))
    image = query.RenderDepthImage(camera, query.inspector().world_frame_id(), X_WC)
    return image.data[:, :, 0].copy()


def render_labels(
    query: QueryObject, renderer: str, intrinsics: CameraInfo, X_WC: RigidTransform
) -> np.ndarray:
    """Returns (height, width) int16."""
    camera = ColorRenderCamera(_core(renderer, intrinsics))
    image = query.RenderLabelImage(camera, query.inspector().world_frame_id(), X_WC)
    return image.data[:, :, 0].copy()


def _core(renderer: str, intrinsics: CameraInfo) -> RenderCameraCore:
    return RenderCameraCore(renderer, intrinsics, ClippingRange(NEAR_M, FAR_M), RigidTransform())


def _camera_pose(simulation: Simulation, scene: Scene, camera: str) -> RigidTransform:
    frame = CAMERAS[camera].frame
    if frame is None:
        return look_at(EYE, TARGET)
    X_FC = scene.cameras[camera].to_transform()
    return X_FC if frame == "world" else simulation.measure().X_WE @ X_FC


def _body_names(world: World) -> dict[int, str]:
    """Drake's label of a body is its index."""
    plant = world.plant
    bodies = map(plant.get_body, map(BodyIndex, range(plant.num_bodies())))
    return {int(body.index()): body.scoped_name().get_full() for body in bodies}
