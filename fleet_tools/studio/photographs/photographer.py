"""Photographs of simulated states: colour by a Blender server, depth and segmentation by VTK."""

import io
import json
import shlex
import urllib.request
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydrake.geometry import MakeRenderEngineGltfClient, QueryObject, RenderEngineGltfClientParams
from pydrake.math import RigidTransform
from pydrake.systems.sensors import ImageFileFormat, ImageIo, ImageRgba8U

from fleet_tools.config.tasks import TaskConfig
from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.envs.episode_state import EnvState
from fleet_tools.envs.outcomes import SIMULATION_ERROR
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.envs.viewed_simulation import ViewedSimulation
from fleet_tools.errors import DatasetError, RenderServerError
from fleet_tools.perception.camera_view import CHANNELS, CameraView
from fleet_tools.perception.display import THIRD, check_camera, find_view
from fleet_tools.perception.render_scene import RenderScene, VtkRenderer
from fleet_tools.robot.arm import LIGHT, Arm
from fleet_tools.sim.world import World
from fleet_tools.storage.atomic_files import write_file

BLENDER = "blender"
"""Name of the renderer in Drake."""

START_SERVER = "python -m fleet_tools.blender --python BPY_ENV/bin/python"


@dataclass(frozen=True, eq=False)
class Photograph:
    """The images of one camera at one moment.

    Attributes:
        rgb: (height, width, 3) uint8, by Blender.
        depth: (height, width) float32, m, by VTK; see `render_depth`.
        segmentation: (height, width) uint8, by VTK; see `fleet_tools.perception.camera_view`.
        K: (3, 3), intrinsics in pixels, see `Pinhole.matrix`.
        X_WC: Pose of the camera: x to the right in the image, y down, z into it.
    """

    rgb: np.ndarray
    depth: np.ndarray
    segmentation: np.ndarray
    K: np.ndarray
    X_WC: RigidTransform

    def save(self, stem: Path) -> dict[str, str]:
        """Writes `stem.png` (colour) and `stem.npz` (depth, segmentation); returns their names.

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


class BlenderRenderer(VtkRenderer):
    """Renders colours by a Blender server, all else by VTK.

    Args:
        server: URL of a Blender server, see `fleet_tools.blender`.

    Raises:
        MissingLibraryError: OpenGL is missing, without which VTK cannot render.
    """

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server, self._color_renderer = server.rstrip("/"), BLENDER

    def enter(self, world: World) -> None:
        """Prepares to show another world; see `VtkRenderer.enter`."""
        if self._render_scene is None:
            self._render_scene = RenderScene(world)
            client = MakeRenderEngineGltfClient(RenderEngineGltfClientParams(base_url=self._server))
            self._render_scene.scene_graph.AddRenderer(BLENDER, client)
        super().enter(world)

    def images(
        self, physics: QueryObject, views: Iterable[CameraView], channels: Collection[str]
    ) -> list[dict[str, np.ndarray]]:
        """Returns the images of each camera, by channel.

        Raises:
            RenderServerError: The server does not answer, or cannot render an image.
        """
        try:
            return super().images(physics, views, channels)
        except RuntimeError as error:
            raise RenderServerError(f"The server rendered no image: {error}") from error


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
        cameras: Names of the cameras: `THIRD`, and the task's.
    """

    def __init__(
        self,
        task: TaskConfig,
        robot: Arm,
        server: str,
        size: tuple[int, int] = (640, 480),
        robot_visuals: str = LIGHT,
    ) -> None:
        self._task, self._size = task, size
        self._renderer = BlenderRenderer(server)
        self._viewed = ViewedSimulation(task, robot, [self._renderer], robot_visuals=robot_visuals)
        self.cameras = (THIRD, *task.cameras)

    def photograph(self, state: EnvState, camera: str) -> Photograph:
        """Takes a photograph.

        Raises:
            UnknownNameError: There is no such camera.
            RenderServerError: The server does not answer, or cannot render the image.
            MissingLibraryError: OpenGL or its driver is missing, without which VTK cannot render.
        """
        check_camera(self._task, camera)
        simulation = self._viewed.begin(state.scene)
        simulation.restore(state.snapshot)
        X_WE = simulation.end_effector_pose()
        view = find_view(self._task, state.scene, X_WE, camera, self._size)
        (images,) = self._renderer.images(simulation.query(), [view], CHANNELS)
        return Photograph(**images, K=view.pinhole.matrix(), X_WC=view.X_WC)


def require_server(server: str) -> Mapping[str, Any]:
    """Asks a Blender server for its health, see `GET /health` in `render_requests`.

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
        raise RenderServerError(
            f"The server at {server} is not a Blender server of fleet_tools.blender."
        )
    return health


PhotoJob = tuple[str, EnvState, str]
"""Name of a state, which with the camera's name is the stem of the files; the state; the camera."""


@dataclass(frozen=True, eq=False)
class PhotoSource:
    """States that are to be photographed.

    Attributes:
        task: The task.
        robot: The arm.
        robot_visuals: Its visual meshes.
        states: The states by name; each is simulated when it is asked for.
    """

    task: TaskConfig
    robot: Arm
    robot_visuals: str
    states: Iterator[tuple[str, EnvState]]


def dataset_states(folder: Path, episodes: int | None, every: int) -> PhotoSource:
    """Returns states of the stored episodes of a dataset.

    The stored actions run again, and every state is compared with the stored one bit for bit.

    Args:
        folder: Folder of the dataset.
        episodes: Number of episodes, from the first; None takes all.
        every: Number of control steps from one state to the next.

    Raises:
        DatasetError: The dataset cannot be read, or holds no episodes; while iterating, a stored
            episode is damaged, or its replay differs.
        FleetToolsError: Its environment cannot be made here.
    """
    dataset = Dataset(folder)
    records = dataset.stored()[:episodes]
    if not records:
        raise DatasetError(f"{dataset.folder} holds no episodes yet.")
    header = dataset.header
    header.require_tool_use()
    env = unwrap(header.make_env(obs_mode="state"))
    visuals = str(header.env_spec.kwargs.get("robot_visuals", LIGHT))

    def states() -> Iterator[tuple[str, EnvState]]:
        for record in records:
            episode = dataset.episode(record.attempt)
            env.reset(options={"scene": episode.scene})
            for step in range(len(episode) + 1):
                if step:
                    env.step(episode.actions[step - 1])
                if env.state_digest() != episode.digests[step]:
                    raise DatasetError(
                        f"{record.file} does not replay here: it differs at step {step}. `python "
                        f"-m fleet_tools.replay {shlex.quote(str(dataset.folder))}` shows details."
                    )
                failed = episode.outcome == SIMULATION_ERROR and step == len(episode)
                if step % every == 0 and not failed:
                    yield f"{record.attempt:06d}_{step:03d}", env.get_state()

    return PhotoSource(env.task, env.robot, visuals, states())


def make_photographs(
    task: TaskConfig,
    robot: Arm,
    server: str,
    size: tuple[int, int],
    robot_visuals: str,
    folder: Path,
) -> Callable[[PhotoJob], dict[str, Any]]:
    """Returns a function that takes a photograph, writes its files, and returns its JSON record."""
    photographer = Photographer(task, robot, server, size, robot_visuals)

    def photograph(job: PhotoJob) -> dict[str, Any]:
        name, state, camera = job
        taken = photographer.photograph(state, camera)
        return {
            "name": name,
            "camera": camera,
            **taken.save(folder / f"{name}_{camera}"),
            "K": taken.K.tolist(),
            "X_WC": taken.X_WC.GetAsMatrix4().tolist(),
            "scene": state.scene.model_dump(mode="json"),
            "step": state.snapshot.step,
        }

    return photograph
