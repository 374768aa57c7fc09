"""Photographs of simulated states: colour by a Blender server, depth and segmentation by VTK."""

import io
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
from fleet_tools.errors import RenderServerError
from fleet_tools.perception.appearance import apply_appearance
from fleet_tools.perception.display import check_camera, find_view
from fleet_tools.perception.render_scene import RenderScene
from fleet_tools.perception.rendering import render_depth, render_rgb, render_segmentation
from fleet_tools.perception.third_person_view import THIRD
from fleet_tools.robot.arm import LIGHT, Arm
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.task_models import find_task_model
from fleet_tools.sim.world import World, build_world
from fleet_tools.storage.atomic_files import write_file

BLENDER = "blender"
"""Name of the renderer in Drake."""

START_SERVER = "python -m fleet_tools.blender --python BPY_ENV/bin/python"

_THIRD_DEPTH_RANGE_M = (0.05, 10.0)


@dataclass(frozen=True, eq=False)
class Photograph:
    """The images of one camera at one moment.

    Attributes:
        rgb: (height, width, 3) uint8, by Blender.
        depth: (height, width) float32, m, by VTK; see `render_depth`.
        segmentation: (height, width) uint8, by VTK; see `fleet_tools.perception.segmentation`.
        K: (3, 3), intrinsics in pixels, see `Pinhole.matrix`.
        X_WC: Pose of the camera: x to the right in the image, y down, z into it.
    """

    rgb: np.ndarray
    depth: np.ndarray
    segmentation: np.ndarray
    K: np.ndarray
    X_WC: RigidTransform

    def save(self, stem: Path) -> dict[str, str]:
        """Writes `stem.png` with the colour image, and `stem.npz` with depth and segmentation.

        Returns:
            The names of the files.

        Raises:
            DiskError: The disk is full, read-only or broken.
        """
        image = ImageRgba8U(self.rgb.shape[1], self.rgb.shape[0])
        image.mutable_data[:, :, :3], image.mutable_data[:, :, 3] = self.rgb, 255
        png, npz = (stem.with_name(stem.name + suffix) for suffix in (".png", ".npz"))
        # Drake cuts a file off on a full disk, without an error.
        save: Any = ImageIo().Save  # its stub knows other names of images
        write_file(png, save(image, format=ImageFileFormat.kPng))
        arrays = io.BytesIO()
        np.savez_compressed(arrays, depth=self.depth, segmentation=self.segmentation)
        write_file(npz, arrays.getvalue())
        return {"rgb": png.name, "depth_and_segmentation": npz.name}


@dataclass(frozen=True, eq=False)
class _Stage:
    """The simulation of a pair of models, and its visual side, which outlives the pair."""

    simulation: Simulation
    render_scene: RenderScene

    def has_models_of(self, scene: Scene) -> bool:
        """Whether the world holds the tool and the object of a scene."""
        present = self.simulation.scene
        return (scene.tool, scene.object) == (present.tool, present.object)


class Photographer:
    """Takes photographs of an environment's states.

    Drake's client blocks Python until the server's image has arrived. Several photographs at the
    same time therefore need as many processes, each with a photographer.

    Args:
        task: Task of the environment.
        robot: Its robot.
        server: URL of a Blender server, see `fleet_tools.blender`.
        size: (width, height) of the images, in pixels.
        robot_visuals: Visual meshes of the arm, as in the environment.

    Attributes:
        cameras: Names of the cameras: `THIRD`, and those of the task.
    """

    def __init__(
        self,
        task: TaskConfig,
        robot: Arm,
        server: str,
        size: tuple[int, int] = (640, 480),
        robot_visuals: str = LIGHT,
    ) -> None:
        self._task, self._server, self._size = task, server.rstrip("/"), size
        self._robot, self._robot_visuals = robot, robot_visuals
        self._stage: _Stage | None = None
        self.cameras = (THIRD, *task.cameras)

    def photograph(self, state: EnvState, camera: str) -> Photograph:
        """Takes a photograph.

        Args:
            state: A state, as `env.get_state()` returns it.
            camera: Name of one of the `cameras`.

        Raises:
            UnknownNameError: There is no such camera.
            RenderServerError: The server does not answer, or cannot render the image.
            MissingLibraryError: OpenGL or its driver is missing, without which VTK cannot render.
        """
        check_camera(self._task, camera)
        stage = self._enter(state.scene)
        stage.simulation.restore(state.snapshot)
        X_WE = stage.simulation.end_effector_pose()
        view = find_view(self._task, state.scene, X_WE, camera, self._size)
        pinhole, X_WC = view.pinhole, view.X_WC
        query = stage.render_scene.query(stage.simulation.query())
        try:
            rgb = render_rgb(query, pinhole, X_WC, BLENDER)
        except RuntimeError as error:
            raise RenderServerError(f"The server rendered no image: {error}") from error
        return Photograph(
            rgb=rgb,
            depth=render_depth(query, pinhole, X_WC, self._depth_range_m(camera)),
            segmentation=render_segmentation(query, pinhole, X_WC),
            K=pinhole.matrix(),
            X_WC=X_WC,
        )

    def _depth_range_m(self, camera: str) -> tuple[float, float]:
        if camera == THIRD:
            return _THIRD_DEPTH_RANGE_M
        return self._task.cameras[camera].depth_range_m

    def _enter(self, scene: Scene) -> _Stage:
        """Begins a scene; a world is built if its tool or object differ from the last scene's."""
        stage = self._stage
        if stage is None or not stage.has_models_of(scene):
            tool = find_task_model(self._task, "tool", scene.tool)
            object = find_task_model(self._task, "object", scene.object)
            world = build_world(
                self._task, self._robot, tool, object, robot_visuals=self._robot_visuals
            )
            render_scene = self._new_render_scene(world) if stage is None else stage.render_scene
            render_scene.enter(world)
            stage = self._stage = _Stage(Simulation(world, tool, object, scene), render_scene)
        else:
            stage.simulation.reset(scene)
        apply_appearance(scene, stage.render_scene)
        return stage

    def _new_render_scene(self, world: World) -> RenderScene:
        render_scene = RenderScene(world)
        client = RenderEngineGltfClientParams(base_url=self._server)
        render_scene.scene_graph.AddRenderer(BLENDER, MakeRenderEngineGltfClient(client))
        return render_scene


def require_server(server: str) -> Mapping[str, Any]:
    """Asks a Blender server for its health, see `GET /health` in `fleet_tools.blender.server`.

    Raises:
        RenderServerError: The server does not answer; the message tells how to start one.
    """
    try:
        with urllib.request.urlopen(f"{server.rstrip('/')}/health", timeout=10) as answer:
            health = json.load(answer)
    except (OSError, ValueError) as error:
        raise RenderServerError(
            f"No Blender server answers at {server} ({error}). Start one in another terminal, with "
            f"the Python of an environment that has bpy: {START_SERVER}"
        ) from error
    if not isinstance(health, dict) or "blender" not in health:
        raise RenderServerError(f"The server at {server} is not one of fleet_tools.blender.")
    return health
