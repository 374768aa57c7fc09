"""The observer: measures one world after another, with the cameras of a task."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from pydrake.math import RigidTransform

from fleet_tools.config.cameras import Camera
from fleet_tools.config.geometry import Pose
from fleet_tools.errors import ConfigError, FleetToolsError
from fleet_tools.perception.camera_view import OBJECT, TOOL, CameraView, Pinhole
from fleet_tools.perception.measurement import (
    NOTHING,
    RENDERERS,
    Capture,
    Measurement,
    ObservationConfig,
)
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world import World
from fleet_tools.utils.imports import load_user_object

# They are imported where cameras are asked for.
if TYPE_CHECKING:
    from fleet_tools.perception.depth_sensor import DepthSensor
    from fleet_tools.perception.renderer import Renderer


class Observer:
    """Measures the world; OpenGL is not touched before images are needed.

    Args:
        config: What to observe.

    Raises:
        ConfigError: The renderer does not show this.
        MissingLibraryError: It lacks a library.
    """

    def __init__(self, config: ObservationConfig) -> None:
        self._config = config
        self._renderer = None if config.seen == NOTHING else _make_renderer(config)
        self._sensors: dict[str, DepthSensor] = {}

    def enter(self, world: World) -> None:
        """Prepares to observe another world; see `Renderer.enter`."""
        if self._renderer is not None:
            self._renderer.enter(world)

    def begin(self, scene: Scene) -> None:
        """Begins an episode in a scene; its initial state is measured next."""
        config = self._config
        if self._renderer is None:
            return
        self._renderer.begin(scene)
        if config.sensor is not None:
            from fleet_tools.perception.depth_sensor import DepthSensor

            self._sensors = {
                name: DepthSensor.draw(
                    config.sensor,
                    name,
                    camera,
                    Pinhole.of(camera, config.camera_size),
                    scene.seed,
                    scene.depth_error_scale,
                )
                for name, camera in config.cameras.items()
            }

    def close(self) -> None:
        """Releases OpenGL; `enter` starts anew."""
        if self._renderer is not None:
            self._renderer.close()

    def measure(
        self, simulation: Simulation, scene: Scene, earlier: Capture | None = None
    ) -> Measurement:
        """Measures the present state, and captures it by cameras.

        Args:
            simulation: The simulation.
            scene: Scene of the episode.
            earlier: What was captured in the step before, which delayed cameras show; None at the
                start of an episode, where they show the present, too.

        Raises:
            SimulationError: The solver finds no contact forces.
        """
        state, config = simulation.world_state(), self._config
        if self._renderer is None:
            return Measurement(state)
        views = camera_views(config.cameras, scene.cameras, state.X_WE, config.camera_size)
        latest = self._capture(self._renderer, simulation, views)
        shown = earlier if config.delayed and earlier is not None else latest
        if shown.points is None:
            return Measurement(state, shown, latest)
        from fleet_tools.perception.point_cloud import SAMPLINGS, stack

        X_EW = state.X_WE.inverse()
        tool, object = (X_EW.multiply(p_W.T).T for p_W in shown.points)
        place = None if state.p_W_place is None else X_EW @ state.p_W_place
        cloud = stack(tool, object, config.cloud_size, SAMPLINGS[config.sampling], place)
        return Measurement(state, shown, latest, cloud)

    def visible_points(
        self, simulation: Simulation, views: list[CameraView]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the points of tool (n, 3) and object (m, 3) that the cameras see, in W, m.

        Args:
            simulation: The simulation.
            views: The cameras, as they are.
        """
        from fleet_tools.perception.point_cloud import points_of

        assert self._renderer is not None  # it observes points
        seen: dict[int, list[np.ndarray]] = {TOOL: [], OBJECT: []}
        found = self._renderer.points(simulation.query(), views)
        for view, hits in zip(views, found, strict=True):
            X = view.X_WC
            if (sensor := self._sensors.get(view.name)) is not None:
                X, hits = X @ sensor.X_CK, sensor.read_hits(hits, simulation.steps)
            for part, points_W in seen.items():
                points_W.append(X.multiply(points_of(hits[part], view.pinhole).T).T)
        return np.concatenate(seen[TOOL]), np.concatenate(seen[OBJECT])

    def camera_info(self, measurement: Measurement) -> dict[str, dict[str, Any]]:
        """Returns `K` (3, 3), in pixels, and `X_WC` (4, 4), as calibrated, of each camera."""
        if measurement.shown is None:
            return {}
        cameras, size = self._config.cameras, self._config.camera_size
        return {
            name: {"K": Pinhole.of(cameras[name], size).matrix(), "X_WC": X_WC.GetAsMatrix4()}
            for name, X_WC in measurement.shown.X_WC.items()
        }

    def _capture(
        self, renderer: "Renderer", simulation: Simulation, views: list[CameraView]
    ) -> Capture:
        sensors = self._sensors
        X_WK = {
            view.name: view.X_WC @ sensors[view.name].X_CK if sensors else view.X_WC
            for view in views
        }
        if self._config.seen == "points":
            return Capture(X_WK, {}, self.visible_points(simulation, views))
        found = renderer.images(simulation.query(), views, self._config.channels)
        images = {
            (view.name, channel): image
            for view, of_view in zip(views, found, strict=True)
            for channel, image in of_view.items()
        }
        for name, sensor in sensors.items():
            if (depth := images.get((name, "depth"))) is not None:
                images[name, "depth"] = sensor.read_image(depth, simulation.steps)
        return Capture(X_WK, images)


def _make_renderer(config: ObservationConfig) -> "Renderer":
    """Makes the renderer that shows what is observed.

    Raises:
        ConfigError, UnknownNameError: There is none of this name, or it does not show this.
        MissingLibraryError: It lacks a library.
    """
    name, argument, asked = config.renderer, "cloud_source", {"points"}
    if config.seen == "images":
        argument, asked = "image_source", {*config.channels}
    make = load_user_object(RENDERERS.get(name, name), "renderer", ConfigError)
    try:
        renderer = make()
        shows = {*renderer.shows}
    except FleetToolsError:
        raise
    except Exception as error:  # a user's renderer may fail in any way
        what = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{argument}={name!r} cannot be created ({what}).") from error
    if missing := sorted(asked - shows):
        raise ConfigError(
            f"{argument}={name!r} shows {', '.join(sorted(shows))}, not {', '.join(missing)}."
        )
    return renderer


def camera_views(
    cameras: Mapping[str, Camera],
    extrinsics: Mapping[str, Pose],
    X_WE: RigidTransform,
    size: tuple[int, int],
) -> list[CameraView]:
    """Returns the cameras of a task where they are now.

    Args:
        cameras: The task's cameras.
        extrinsics: X_FC of each camera, from the scene.
        X_WE: Pose of the end effector.
        size: Width and height of the images, pixels.
    """
    X_WF = {"world": RigidTransform(), "end_effector": X_WE}
    return [
        CameraView(
            name,
            Pinhole.of(camera, size),
            X_WF[camera.frame] @ extrinsics[name].to_transform(),
            camera.depth_range_m,
            camera.frame,
        )
        for name, camera in cameras.items()
    ]
