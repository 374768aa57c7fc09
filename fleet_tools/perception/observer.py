"""The observer: measures one world after another, with the cameras of a task."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydrake.geometry import QueryObject
from pydrake.math import RigidTransform

from fleet_tools.config.cameras import Camera
from fleet_tools.config.geometry import Pose
from fleet_tools.perception import point_cloud
from fleet_tools.perception.appearance import apply_appearance
from fleet_tools.perception.camera_view import CameraView
from fleet_tools.perception.depth_sensor import DepthSensor
from fleet_tools.perception.measurement import Capture, Measurement
from fleet_tools.perception.observation_config import ObservationConfig
from fleet_tools.perception.pinhole import Pinhole
from fleet_tools.perception.point_cloud import points_of
from fleet_tools.perception.ray_scene import RayScene
from fleet_tools.perception.render_scene import RenderScene
from fleet_tools.perception.rendering import render_depth, render_rgb, render_segmentation
from fleet_tools.perception.segmentation import OBJECT, TOOL
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world import World


class Observer:
    """Measures the world; OpenGL is not touched before images are needed.

    Args:
        config: What to observe.
    """

    def __init__(self, config: ObservationConfig) -> None:
        self._config = config
        self._pinholes = {
            name: Pinhole.of(camera, config.camera_size) for name, camera in config.cameras.items()
        }
        self._render_scene: RenderScene | None = None
        self._ray_scene = RayScene() if config.casts_rays else None
        self._sensors: dict[str, DepthSensor] = {}

    def enter(self, world: World) -> None:
        """Prepares to observe another world.

        Raises:
            MissingLibraryError, ForkedRendererError: Images cannot be rendered here.
            ConfigError: The world has too many visible links.
        """
        if self._ray_scene is not None:
            self._ray_scene.enter(world)
        if not self._config.needs_renderer:
            return
        if self._render_scene is None:
            self._render_scene = RenderScene(world)
        self._render_scene.enter(world)

    def close(self) -> None:
        """Releases OpenGL; `enter` starts anew."""
        self._render_scene = None

    def apply_scene(self, scene: Scene) -> None:
        """Sets the appearance and the sensors of a scene; its initial state is measured next."""
        self._sensors = self._draw_sensors(scene.seed)
        if self._ray_scene is not None:
            self._ray_scene.begin()
        if self._config.has_colors and self._render_scene is not None:
            apply_appearance(scene, self._render_scene)

    def measure(
        self, simulation: Simulation, scene: Scene, earlier: Capture | None = None
    ) -> Measurement:
        """Measures the present state, and renders the images that are asked for.

        Args:
            simulation: The simulation.
            scene: Scene of the episode.
            earlier: What was captured in the step before, which delayed cameras show; None at the
                start of an episode, where they show the present, too.

        Raises:
            SimulationError: The solver finds no contact forces.
        """
        state, config = simulation.world_state(), self._config
        if not config.has_cameras:
            return Measurement(state)
        latest = self._capture(simulation, scene, state.X_WE)
        shown = earlier if config.delayed and earlier is not None else latest
        if config.obs_mode == "rgbd":
            return Measurement(state, shown, latest)
        X_EW = state.X_WE.inverse()
        tool, object = (X_EW.multiply(p_W.T).T for p_W in (shown.p_W_tool, shown.p_W_object))
        cloud = point_cloud.stack(tool, object, config.cloud_size, config.sampling)
        return Measurement(state, shown, latest, cloud)

    def visible_points(
        self,
        simulation: Simulation,
        X_WC: Mapping[str, RigidTransform],
        sensors: Mapping[str, DepthSensor] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns what all cameras see of the tool (n, 3) and the object (m, 3), in W, m.

        Args:
            simulation: The simulation.
            X_WC: Poses of the cameras.
            sensors: Cameras with errors.
        """
        views = [
            CameraView(name, self._config.cameras[name], pinhole, X_WC[name])
            for name, pinhole in self._pinholes.items()
        ]
        source = self._ray_scene or self._entered()
        seen: dict[int, list[np.ndarray]] = {TOOL: [], OBJECT: []}
        for view, hits in zip(views, source.hits(simulation.query(), views), strict=True):
            X = view.X_WC
            if sensor := (sensors or {}).get(view.name):
                X, hits = X @ sensor.X_CK, sensor.read_hits(hits, simulation.steps)
            for part, points_W in seen.items():
                points_W.append(X.multiply(points_of(hits[part], view.pinhole).T).T)
        return np.concatenate(seen[TOOL]), np.concatenate(seen[OBJECT])

    def camera_info(self, measurement: Measurement) -> dict[str, dict[str, Any]]:
        """Returns `K` (3, 3), in pixels, and `X_WC` (4, 4), as calibrated, of each camera."""
        return {
            name: {"K": self._pinholes[name].matrix(), "X_WC": X_WC.GetAsMatrix4()}
            for name, X_WC in measurement.shown.X_WC.items()
        }

    def _entered(self) -> RenderScene:
        if self._render_scene is None:
            raise RuntimeError("This observer renders nothing, or has not entered a world.")
        return self._render_scene

    def _capture(self, simulation: Simulation, scene: Scene, X_WE: RigidTransform) -> Capture:
        config = self._config
        X_WC = camera_poses(config.cameras, scene.cameras, X_WE)
        sensors = self._sensors
        X_WK = {name: X @ sensors[name].X_CK if sensors else X for name, X in X_WC.items()}
        if config.obs_mode == "point_cloud":
            return Capture(X_WK, {}, *self.visible_points(simulation, X_WC, sensors))
        images = self._images(self._entered().query(simulation.query()), X_WC)
        for name, sensor in sensors.items():
            if (depth := images.get((name, "depth"))) is not None:
                images[name, "depth"] = sensor.read_image(depth, simulation.steps)
        return Capture(X_WK, images)

    def _draw_sensors(self, seed: int) -> dict[str, DepthSensor]:
        """Returns the cameras with errors, by name; none if they are ideal."""
        config = self._config
        if config.sensor is None:
            return {}
        return {
            name: DepthSensor.draw(config.sensor, name, config.cameras[name], pinhole, seed)
            for name, pinhole in self._pinholes.items()
        }

    def _images(
        self, query: QueryObject, X_WC: Mapping[str, RigidTransform]
    ) -> dict[tuple[str, str], np.ndarray]:
        images: dict[tuple[str, str], np.ndarray] = {}
        for name, pinhole in self._pinholes.items():
            for channel in self._config.channels:
                images[name, channel] = self._image(query, name, channel, pinhole, X_WC[name])
        return images

    def _image(
        self, query: QueryObject, name: str, channel: str, pinhole: Pinhole, X_WC: RigidTransform
    ) -> np.ndarray:
        if channel == "rgb":
            return render_rgb(query, pinhole, X_WC)
        if channel == "depth":
            return render_depth(query, pinhole, X_WC, self._config.cameras[name].depth_range_m)
        return render_segmentation(query, pinhole, X_WC)


def camera_poses(
    cameras: Mapping[str, Camera], extrinsics: Mapping[str, Pose], X_WE: RigidTransform
) -> dict[str, RigidTransform]:
    """Returns X_WC of each camera.

    Args:
        cameras: The task's cameras.
        extrinsics: X_FC of each camera, from the scene.
        X_WE: Pose of the end effector.
    """
    X_WF = {"world": RigidTransform(), "end_effector": X_WE}
    return {
        name: X_WF[camera.frame] @ extrinsics[name].to_transform()
        for name, camera in cameras.items()
    }
