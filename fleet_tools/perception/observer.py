"""Sight: what an environment sees of its world, as its vision asks for."""

from typing import Any

import numpy as np
from pydrake.geometry import QueryObject

from fleet_tools.envs.observations import Moment
from fleet_tools.perception import point_cloud
from fleet_tools.perception.appearance import paint
from fleet_tools.perception.observation_config import Vision
from fleet_tools.perception.render_scene import Scenery
from fleet_tools.perception.rig import CameraRig
from fleet_tools.perception.third_person_view import third_view
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world import World


class Sight:
    """Looks at one world after another; OpenGL is not touched before the first.

    Args:
        vision: What is to be observed.
        pictures: Whether people want pictures, too.

    Attributes:
        rig: The cameras; None where no images are observed.
    """

    def __init__(self, vision: Vision, pictures: bool) -> None:
        self._vision = vision
        self._in_colour = pictures or vision.has_colours
        self._in_use = pictures or vision.has_images
        self._scenery: Scenery | None = None
        self.rig: CameraRig | None = None

    def enter(self, world: World) -> None:
        """Looks at a world from now on.

        Raises:
            MissingLibraryError, ForkedRendererError: Images cannot be rendered here.
            ConfigError: There is too much to see.
        """
        if not self._in_use:
            return
        if self._scenery is None:
            self._scenery = Scenery(world)
            if self._vision.has_images:
                size = self._vision.camera_size
                self.rig = CameraRig(self._scenery, self._vision.cameras, size)
        self._scenery.enter(world)

    def close(self) -> None:
        """Lets go of OpenGL; `enter` begins anew."""
        self._scenery = self.rig = None

    def begin(self, scene: Scene) -> None:
        """Gives everything the looks that it has in a scene."""
        if self._in_colour:
            paint(self._scenery, scene)

    def look(self, simulation: Simulation, scene: Scene) -> Moment:
        """Measures what is so now, and takes the images that are wanted.

        Raises:
            SimulationError: The solver finds no contact forces.
        """
        state = simulation.measure()
        if self.rig is None:
            return Moment(state)
        query, vision = self.query(simulation), self._vision
        X_WC = self.rig.poses(scene.cameras, state.X_WE)
        if vision.obs_mode == "rgbd":
            return Moment(state, X_WC, views=self.rig.views(query, X_WC, vision.channels))
        X_EW = state.X_WE.inverse()
        tool, object = (X_EW.multiply(p_W.T).T for p_W in self.rig.points(query, X_WC))
        cloud = point_cloud.stack(tool, object, vision.cloud_size, vision.cloud_sampling)
        return Moment(state, X_WC, cloud=cloud)

    def cameras(self, moment: Moment) -> dict[str, dict[str, Any]]:
        """Returns `K` (3, 3), in pixels, and `X_WC` (4, 4) of each camera that has looked."""
        return {
            name: {"K": self.rig.sensors[name].pinhole.matrix(), "X_WC": X_WC.GetAsMatrix4()}
            for name, X_WC in moment.X_WC.items()
        }

    def picture(self, simulation: Simulation) -> np.ndarray:
        """Returns the third view of what is so now, (480, 640, 3) uint8."""
        return third_view(self.query(simulation))

    def query(self, simulation: Simulation) -> QueryObject:
        """Returns what can be rendered of what is so now."""
        return self._scenery.query(simulation.query())
