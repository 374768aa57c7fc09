"""Photographs of simulated moments: colour from a Blender server, depth and labels from VTK."""

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydrake.geometry import MakeRenderEngineGltfClient, RenderEngineGltfClientParams
from pydrake.math import RigidTransform
from pydrake.systems.sensors import ImageFileFormat, ImageIo, ImageRgba8U

from fleet_tools.config.tasks import TaskConfig
from fleet_tools.envs.tool_use_env import EnvState
from fleet_tools.errors import RenderServerError, UnknownNameError
from fleet_tools.perception.appearance import paint
from fleet_tools.perception.pinhole import Pinhole
from fleet_tools.perception.render_scene import Scenery
from fleet_tools.perception.rendering import render_rgb
from fleet_tools.perception.rig import CameraRig
from fleet_tools.perception.sensor import Sensor
from fleet_tools.perception.third_person_view import EYE, FIELD_OF_VIEW_DEG, TARGET, look_at
from fleet_tools.robot.panda import Visuals
from fleet_tools.sim.catalog import find_model
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world import build_world

BLENDER = "blender"
"""The renderer's name in Drake."""

START_SERVER = "python -m fleet_tools.blender --python BPY_ENV/bin/python"

THIRD = "third"
"""A camera that every task has: the view of `env.render()`."""


@dataclass(frozen=True, eq=False)
class Photograph:
    """What one camera sees of one moment.

    Attributes:
        rgb: (height, width, 3) uint8, from Blender.
        depth, segmentation: From VTK, see `fleet_tools.perception.sensor.Sensor`.
        K: (3, 3), intrinsics in pixels, as `fleet_tools.perception.pinhole` counts them.
        X_WC: Pose of the camera: x to the right of the picture, y down, z into it.
    """

    rgb: np.ndarray
    depth: np.ndarray
    segmentation: np.ndarray
    K: np.ndarray
    X_WC: RigidTransform

    def save(self, stem: Path) -> dict[str, str]:
        """Writes `stem.png` with the colour and `stem.npz` with depth and segmentation.

        Returns:
            The files' names.
        """
        image = ImageRgba8U(self.rgb.shape[1], self.rgb.shape[0])
        image.mutable_data[:, :, :3], image.mutable_data[:, :, 3] = self.rgb, 255
        picture, arrays = (stem.with_name(stem.name + end) for end in (".png", ".npz"))
        ImageIo().Save(image, str(picture), ImageFileFormat.kPng)
        np.savez_compressed(arrays, depth=self.depth, segmentation=self.segmentation)
        return {"rgb": picture.name, "depth_and_segmentation": arrays.name}


class Photographer:
    """Takes photographs of an environment's states.

    Drake's client holds Python up until the picture has come. For several pictures at the same
    time, take as many photographers, each in a process of its own.

    Args:
        task: The environment's.
        server: URL of a Blender server, see `fleet_tools.blender`.
        size: (width, height) in pixels.
        robot_visuals: The environment's.
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
        self.cameras = (THIRD, *task.cameras)
        pinhole = Pinhole.from_field_of_view(*size, FIELD_OF_VIEW_DEG)
        self._third = Sensor(pinhole, depth_range_m=(0.05, 10.0))
        self._scenery: Scenery | None = None
        self._rig: CameraRig | None = None
        self._built: tuple[tuple[str, str], Simulation] | None = None

    def photograph(self, state: EnvState, camera: str) -> Photograph:
        """Takes a photograph.

        Args:
            state: As `env.get_state()` returns it.
            camera: One of `cameras`.

        Raises:
            UnknownNameError: There is no such camera.
            RenderServerError: The server is not there, or cannot render this.
            MissingLibraryError: OpenGL is missing, without which there is no VTK.
        """
        if camera not in self.cameras:
            raise UnknownNameError("camera", camera, self.cameras)
        simulation = self._enter(state.scene)
        simulation.reset(state.scene)
        simulation.restore(state.snapshot)
        paint(self._scenery, state.scene)
        query = self._scenery.query(simulation.query())
        sensor, X_WC = self._third, look_at(EYE, TARGET)
        if camera != THIRD:
            sensor = self._rig.sensors[camera]
            X_WC = self._rig.poses(state.scene.cameras, simulation.measure().X_WE)[camera]
        try:
            rgb = render_rgb(query, sensor.pinhole, X_WC, BLENDER)
        except RuntimeError as error:
            raise RenderServerError(f"No photograph came: {error}") from error
        return Photograph(
            rgb=rgb,
            depth=sensor.depth(query, X_WC),
            segmentation=sensor.segmentation(query, X_WC),
            K=sensor.pinhole.matrix(),
            X_WC=X_WC,
        )

    def _enter(self, scene: Scene) -> Simulation:
        """Returns the simulation of a scene's tool and object, and looks at its world."""
        pair = scene.tool, scene.object
        if self._built is None or self._built[0] != pair:
            task = self._task
            tool = find_model("tool", task.tool_family, scene.tool, task.assets)
            object = find_model("object", task.object_family, scene.object, task.assets)
            world = build_world(task, tool, object, robot_visuals=self._robot_visuals)
            if self._scenery is None:
                self._scenery = Scenery(world)
                client = RenderEngineGltfClientParams(base_url=self._server)
                engine = MakeRenderEngineGltfClient(client)
                self._scenery.scene_graph.AddRenderer(BLENDER, engine)
                self._rig = CameraRig(self._scenery, task.cameras, self._size)
            self._scenery.enter(world)
            self._built = (pair, Simulation(world, tool, object))
        return self._built[1]


def require_server(server: str) -> Mapping[str, Any]:
    """Returns what a Blender server says of itself.

    Raises:
        RenderServerError: It is not there; the message has the line that starts one.
    """
    try:
        with urllib.request.urlopen(f"{server.rstrip('/')}/health", timeout=10) as answer:
            health = json.load(answer)
    except (OSError, ValueError) as error:
        raise RenderServerError(
            f"No Blender answers at {server} ({error}). Start one in another terminal, with the "
            f"Python of an environment that has bpy: {START_SERVER}"
        ) from error
    if not isinstance(health, dict) or "blender" not in health:
        raise RenderServerError(f"What answers at {server} is no server of fleet_tools.blender.")
    return health
