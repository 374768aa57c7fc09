"""Pictures for people, with shadows, apart from what policies observe."""

import numpy as np

from fleet_tools.perception.appearance import apply_appearance
from fleet_tools.perception.render_scene import RenderScene
from fleet_tools.perception.rendering import render_rgb
from fleet_tools.perception.third_person_view import View
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world import World


class Display:
    """Renders pictures of one world after another.

    Its renderer has lights of its own and casts shadows. The observation cameras have another one,
    so that a policy observes the same whether it is watched or not.
    """

    def __init__(self) -> None:
        self._render_scene: RenderScene | None = None

    def enter(self, world: World) -> None:
        """Prepares to show another world.

        Raises:
            MissingLibraryError, ForkedRendererError: Images cannot be rendered here.
            ConfigError: The world has too many visible links.
        """
        if self._render_scene is None:
            self._render_scene = RenderScene(world, shadows=True)
        self._render_scene.enter(world)

    def close(self) -> None:
        """Releases OpenGL; `enter` starts anew."""
        self._render_scene = None

    def apply_scene(self, scene: Scene) -> None:
        """Sets the appearance of a scene."""
        apply_appearance(scene, self._entered())

    def image(self, simulation: Simulation, view: View) -> np.ndarray:
        """Returns a picture of the present state, (height, width, 3) uint8."""
        query = self._entered().query(simulation.query())
        return render_rgb(query, view.pinhole, view.X_WC)

    def _entered(self) -> RenderScene:
        if self._render_scene is None:
            raise RuntimeError("This display has not entered a world.")
        return self._render_scene
